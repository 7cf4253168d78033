//! A call of `./starling run` and what must come of it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Seconds after which a call has failed: enough for a slow machine with other things to do.
const TIME_LIMIT_SECONDS: u32 = 300;

/// What a text must be like.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// Exactly this.
    Exactly(Vec<u8>),
    /// This is in it.
    Contains(&'static str),
    /// All of these are in it, in this order.
    InOrder(&'static [&'static str]),
    /// One line, this in it.
    LineWith(&'static str),
}

/// Whether a text has all the parts, one behind the other.
fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let rest = parts.iter().try_fold(text, |rest, part| rest.split_once(part).map(|(_, rest)| rest));
    rest.is_some()
}

impl Expected {
    fn check(&self, what: &str, found: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(found);
        let good = match self {
            Self::Exactly(bytes) => bytes == found,
            Self::Contains(part) => text.contains(part),
            Self::InOrder(parts) => has_in_order(&text, parts),
            Self::LineWith(part) => text.contains(part) && text.lines().count() == 1,
        };
        let wanted = match self {
            Self::Exactly(bytes) => format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)])),
            other => format!("{other:?}"),
        };
        let shown: String = text.chars().take(400).collect();
        if good { Ok(()) } else { Err(format!("{what} is {shown:?} ({} bytes), not {wanted}", found.len())) }
    }
}

/// A call and its promise.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What is promised.
    pub(crate) name: String,
    arguments: Vec<String>,
    command: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    input: Vec<u8>,
    status: i32,
    output: Expected,
    errors: Expected,
    untouched: Option<PathBuf>,
    limit_seconds: u32,
}

impl Case {
    /// A command in the default image that must print nothing and exit with 0.
    pub(crate) fn new(name: impl Into<String>, command: &[&str]) -> Self {
        Self {
            name: name.into(),
            arguments: Vec::new(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            environment: Vec::new(),
            input: Vec::new(),
            status: 0,
            output: Expected::Exactly(Vec::new()),
            errors: Expected::Exactly(Vec::new()),
            untouched: None,
            limit_seconds: TIME_LIMIT_SECONDS,
        }
    }

    /// A shell script.
    pub(crate) fn script(name: impl Into<String>, script: &str) -> Self {
        Self::new(name, &["sh", "-c", script])
    }

    /// Options of `run`, or the image.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|word| (*word).to_owned()));
        self
    }

    /// The image.
    pub(crate) fn image(self, path: &Path) -> Self {
        self.with(&[&path.display().to_string()])
    }

    /// A variable of the host's environment.
    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// What is on standard input.
    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Seconds that it may take, instead of [`TIME_LIMIT_SECONDS`].
    pub(crate) const fn within(mut self, seconds: u32) -> Self {
        self.limit_seconds = seconds;
        self
    }

    /// The exit status that it must have.
    pub(crate) const fn status(mut self, status: i32) -> Self {
        self.status = status;
        self
    }

    /// What must be on standard output.
    pub(crate) fn prints(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.output = Expected::Exactly(text.into());
        self
    }

    /// What standard output must be like.
    pub(crate) fn output(mut self, expected: Expected) -> Self {
        self.output = expected;
        self
    }

    /// What standard error must be like.
    pub(crate) fn errors(mut self, expected: Expected) -> Self {
        self.errors = expected;
        self
    }

    /// What exactly must be on standard error.
    pub(crate) fn errors_are(self, bytes: &[u8]) -> Self {
        self.errors(Expected::Exactly(bytes.to_vec()))
    }

    /// What must not appear on the host.
    pub(crate) fn leaves_alone(mut self, path: PathBuf) -> Self {
        self.untouched = Some(path);
        self
    }

    /// Calls and compares.
    pub(crate) fn run(&self) -> Result<(), String> {
        let found = self.call().map_err(|error| error.to_string())?;
        let mut problems = Vec::new();
        if found.status.code() != Some(self.status) {
            problems.push(format!("{}, not {}", found.status, self.status));
        }
        problems.extend(self.output.check("standard output", &found.stdout).err());
        problems.extend(self.errors.check("standard error", &found.stderr).err());
        if let Some(path) = self.untouched.as_ref().filter(|path| path.exists()) {
            problems.push(format!("{} has appeared on the host", path.display()));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }

    fn call(&self) -> std::io::Result<Output> {
        let mut starling = starling();
        starling
            .args(["--timeout", &self.limit_seconds.to_string()])
            .args(&self.arguments)
            .arg("--")
            .args(&self.command);
        starling.envs(self.environment.iter().copied());
        let mut child =
            starling.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let bytes = self.input.clone();
        // A command that ends before it has read everything closes the pipe: that is no failure.
        let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
        let output = child.wait_with_output();
        // Ends with the pipe's reader.
        let _ = writer.join();
        output
    }
}

/// `./starling run` of this checkout.
pub(crate) fn starling() -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../starling"));
    command.arg("run");
    command
}
