//! The interactive shell, driven through a real terminal: `tmux` types, and its screen is what is judged.
//!
//! Each step types something and waits until the screen shows what must appear; no step depends on how long anything
//! takes, only on [`PATIENCE`] being long enough. The session lives on a `tmux` server of its own and ends with the test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::image::Place;
use crate::verdict::Tally;

/// How long a step may take to show its effect.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the machine may take to show its first prompt (the command may have to be built).
const START_PATIENCE: Duration = Duration::from_secs(180);

/// What is typed, and what the screen must show then.
struct Step {
    name: &'static str,
    keys: &'static [&'static str],
    /// Each must appear; a text in two steps is told apart by the screen being cleared between them.
    shows: &'static [&'static str],
}

/// Keys are `tmux send-keys` names; a word that is no key name is typed as it is.
const STEPS: &[Step] = &[
    Step { name: "command", keys: &["echo one-$((1+1))", "Enter"], shows: &["one-2"] },
    Step { name: "history", keys: &["clear", "Enter", "Up", "Up", "Enter"], shows: &["one-2"] },
    Step {
        name: "editing",
        keys: &["echo abX", "BSpace", "c-$((4", "Home", "Right", "End", "+4))", "Enter"],
        shows: &["abc-8"],
    },
    Step {
        name: "interrupt",
        keys: &["clear; sleep 1000", "Enter", "WAIT", "C-c", "echo st=$?", "Enter"],
        shows: &["^C", "st=130"],
    },
    Step {
        name: "stop",
        keys: &["clear; sleep 1001", "Enter", "WAIT", "C-z", "echo st=$?", "Enter"],
        shows: &["Stopped", "st=148"],
    },
    Step { name: "jobs", keys: &["clear; jobs", "Enter"], shows: &["Stopped", "sleep 1001"] },
    Step { name: "background", keys: &["clear; bg; jobs", "Enter"], shows: &["Running"] },
    Step {
        name: "foreground",
        keys: &["clear; fg", "Enter", "WAIT", "C-c", "echo st=$?", "Enter"],
        shows: &["sleep 1001", "st=130"],
    },
    Step {
        name: "kill",
        keys: &["clear; sleep 1002 &", "Enter", "WAIT", "kill $!; wait $!; echo st=$?", "Enter"],
        shows: &["st=143"],
    },
    Step {
        name: "quit",
        keys: &["clear; sleep 1003", "Enter", "WAIT", "C-\\", "echo st=$?", "Enter"],
        shows: &["st=131"],
    },
    Step { name: "top", keys: &["clear; top", "Enter"], shows: &["Mem:", "CPU:", "PID", "COMMAND"] },
    Step { name: "top-quit", keys: &["q", "clear; echo back-$((2+2))", "Enter"], shows: &["back-4"] },
    Step { name: "pager", keys: &["clear; seq 200 | less", "Enter", "WAIT", "G"], shows: &["200"] },
    Step { name: "pager-quit", keys: &["q", "clear; echo back-$((3+3))", "Enter"], shows: &["back-6"] },
    Step { name: "resize", keys: &["RESIZE", "clear; stty size", "Enter"], shows: &["33 101"] },
    Step {
        name: "end-of-file",
        keys: &["clear; cat; echo cat-$?", "Enter", "WAIT", "typed", "Enter", "C-d"],
        shows: &["typed", "cat-0"],
    },
    Step { name: "exit", keys: &["clear; exit 7", "Enter"], shows: &["status=7"] },
    Step {
        name: "restored",
        keys: &["clear; stty -a | tr ' ;' '\\n' | grep -x -e icanon -e echo | sort | tr '\\n' +", "Enter"],
        shows: &["echo+icanon+"],
    },
];

/// One `tmux` server with one window.
struct Screen {
    socket: String,
}

impl Screen {
    fn tmux(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new("tmux")
            .args(["-L", &self.socket, "-f", "/dev/null"])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("tmux: {error}"))?;
        if !output.status.success() {
            return Err(format!("tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "main"]).unwrap_or_default()
    }

    /// Waits until the screen shows all of these.
    fn waits_for(&self, wanted: &[&str], patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        loop {
            let text = self.text();
            // What was typed may show the wanted text too; only lines that were not typed at a prompt count.
            let printed: Vec<&str> = text.lines().filter(|line| !line.contains("echo ")).collect();
            if wanted.iter().all(|word| printed.iter().any(|line| line.contains(word))) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("waited for {wanted:?}; the screen:\n{}", text.trim_end()));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn perform(&self, step: &Step) -> Result<(), String> {
        for key in step.keys {
            match *key {
                "WAIT" => thread::sleep(Duration::from_millis(700)),
                "RESIZE" => {
                    self.tmux(&["resize-window", "-t", "main", "-x", "101", "-y", "33"])?;
                    thread::sleep(Duration::from_millis(300));
                }
                "Enter" | "Up" | "Home" | "End" | "Right" | "BSpace" => {
                    self.tmux(&["send-keys", "-t", "main", key])?;
                }
                _ if key.starts_with("C-") => {
                    self.tmux(&["send-keys", "-t", "main", key])?;
                }
                _ => {
                    self.tmux(&["send-keys", "-t", "main", "-l", key])?;
                }
            }
            thread::sleep(Duration::from_millis(60));
        }
        self.waits_for(step.shows, PATIENCE)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A server that is gone already is what is wanted.
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Types at the shell and looks at the screen.
pub(crate) fn run(place: &Place, arguments: &Arguments, tally: &mut Tally) -> Result<(), String> {
    if Command::new("tmux").arg("-V").output().is_err() {
        println!("test terminal ... skipped: no tmux on this machine");
        return Ok(());
    }
    let program: PathBuf = arguments.starling.clone().unwrap_or_else(|| place.root().join("starling"));
    let line = format!(
        "'{}' run --cpus 2 --memory 256M '{}'; echo \"status=$?\"; exec sh",
        program.display(),
        place.image().display()
    );
    let screen = Screen { socket: format!("starling-{}", std::process::id()) };
    screen.tmux(&["new-session", "-d", "-s", "main", "-x", "80", "-y", "24", "sh", "-c", &line])?;
    let start = screen.waits_for(&[" #"], START_PATIENCE);
    tally.record("terminal/prompt", "cpus 2", start.as_ref().err().map_or("", String::as_str));
    if start.is_err() {
        return Ok(());
    }
    for step in STEPS {
        let result = screen.perform(step);
        let name = format!("terminal/{}", step.name);
        tally.record(&name, "cpus 2", result.as_ref().err().map_or("", String::as_str));
    }
    Ok(())
}
