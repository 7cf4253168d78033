//! The interactive shell, driven through a real terminal: `tmux` types, and its screen is what is judged.
//!
//! Nothing depends on how long anything takes: each action waits for what the screen must show before the next key is
//! typed, and [`PATIENCE`] only bounds how long a failure takes. Texts that are waited for are never part of what is typed
//! (sums are typed, results are waited for), so an echo is not taken for an answer. A program that is to be
//! interrupted says that it runs first. With each prompt BusyBox asks the terminal where the cursor is, and loses what is typed
//! while the answer is on its way (on Linux too); so what has no effect is typed again. The session lives on a `tmux` server of its own and ends with the test.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::image::Place;
use abi_tests::tally::Tally;

/// How long the screen may take to show what it must.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a machine with a fork bomb may take for what it must show.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

/// How long the machine may take to show its first prompt (the command may have to be built).
const START_PATIENCE: Duration = Duration::from_secs(1200);

/// After how long without an effect something is typed again.
const RESPONSE: Duration = Duration::from_secs(1);

/// How often the screen is looked at.
const INTERVAL: Duration = Duration::from_millis(30);

/// The guest shell's prompt.
const PROMPT: &str = "/ #";

/// Something to do at the terminal, or to wait for.
enum Action {
    /// Types these characters until they are the end of the screen's text, and presses Enter.
    Line(&'static str),
    /// Types these characters at the prompt until they are the end of the screen's text.
    Typed(&'static str),
    /// Has the shell clear the screen.
    Clear,
    /// Types these characters.
    Text(&'static str),
    /// Presses a key, by its `tmux` name.
    Key(&'static str),
    /// Presses a key again and again until a line of the screen shows this.
    Until(&'static str, &'static str),
    /// Waits until a line of the screen shows this.
    Shows(&'static str),
    /// Waits until a line of the screen shows this, with patience for a machine that is busy.
    Eventually(&'static str),
    /// Waits until the shell asks for the next command.
    Prompt,
    /// Makes the window this wide and high.
    Resize(&'static str, &'static str),
}

use Action::{Clear, Eventually, Key, Line, Prompt, Resize, Shows, Text, Typed, Until};

struct Step {
    name: &'static str,
    actions: &'static [Action],
}

const STEPS: &[Step] = &[
    Step { name: "command", actions: &[Line("echo one-$((1+1))"), Shows("one-2"), Prompt] },
    Step {
        name: "history",
        actions: &[Clear, Until("Up", "echo one"), Key("Enter"), Shows("one-2"), Prompt],
    },
    Step {
        name: "editing",
        actions: &[
            Typed("cho abX"),
            Key("BSpace"),
            Text("c-$((4"),
            Key("Home"),
            Text("e"),
            Key("End"),
            Line("+4))"),
            Shows("abc-8"),
            Prompt,
        ],
    },
    Step {
        name: "completion",
        actions: &[Typed("echo /etc/pass"), Key("Tab"), Shows("/etc/passwd"), Key("C-c"), Prompt],
    },
    Step {
        name: "interrupt",
        actions: &[
            Line("sh -c 'echo runs-$((1+2)); exec sleep 1000'"),
            Shows("runs-3"),
            Key("C-c"),
            Shows("^C"),
            Prompt,
            Line("echo st-$?"),
            Shows("st-130"),
            Prompt,
        ],
    },
    Step {
        name: "stop",
        actions: &[
            Line("sh -c 'echo runs-$((1+3)); exec sleep 1001'"),
            Shows("runs-4"),
            Key("C-z"),
            Shows("Stopped"),
            Prompt,
            Line("echo st-$?"),
            Shows("st-148"),
            Prompt,
        ],
    },
    Step { name: "jobs", actions: &[Clear, Line("jobs"), Shows("Stopped"), Prompt] },
    Step { name: "background", actions: &[Clear, Line("bg; jobs"), Shows("Running"), Prompt] },
    Step {
        name: "foreground",
        actions: &[
            Clear,
            // The shell names the job when it is about to wait for it.
            Line("fg"),
            Shows("sleep 1001"),
            Key("C-c"),
            Prompt,
            Line("echo st-$?"),
            Shows("st-130"),
            Prompt,
        ],
    },
    Step {
        name: "kill",
        actions: &[
            Clear,
            Line("sleep 1002 &"),
            Prompt,
            Line("kill $!; wait $!; echo st-$?"),
            Shows("st-143"),
            Prompt,
        ],
    },
    Step {
        name: "quit",
        actions: &[
            Line("sh -c 'echo runs-$((2+3)); exec sleep 1003'"),
            Shows("runs-5"),
            Key("C-\\"),
            Prompt,
            Line("echo st-$?"),
            Shows("st-131"),
            Prompt,
        ],
    },
    Step {
        name: "top",
        actions: &[Line("top"), Shows("Mem:"), Shows("CPU:"), Shows("COMMAND"), Key("q"), Prompt],
    },
    Step {
        name: "pager",
        actions: &[
            Line("clear; seq $((200+50)) | less"),
            Shows("23"),
            Text("G"),
            Shows("250"),
            Key("q"),
            Clear,
        ],
    },
    Step {
        name: "editor",
        actions: &[
            Line("vi /tmp/text"),
            Shows("~"),
            Text("iab"),
            Key("Enter"),
            Text("c"),
            Key("Escape"),
            // The mode, at the left of the last line: with a key too soon after it, Escape is the beginning of that key.
            Shows("- /tmp/text"),
            // Once: the editor loses nothing, and what clears the shell's line is text to it.
            Text(":wq"),
            Shows(":wq"),
            Key("Enter"),
            Prompt,
            Line("clear; wc -c /tmp/text"),
            Shows("5 /tmp/text"),
            Prompt,
        ],
    },
    Step {
        name: "resize",
        actions: &[
            // No longer than a line of the screen.
            Line("sh -c 'trap \"stty size;exit\" WINCH;echo runs-$((3+3));while :;do :;done'"),
            Shows("runs-6"),
            Resize("101", "33"),
            Shows("33 101"),
            Prompt,
        ],
    },
    Step {
        name: "end-of-file",
        actions: &[
            Line("cat; echo cat-$?"),
            Line("typed"),
            Shows("typed"),
            Key("C-d"),
            Shows("cat-0"),
            Prompt,
        ],
    },
];

/// A fork bomb without any limit, in the background. The shell answers while it grows; when memory is full the kernel ends the
/// bomb, not the shell. What is typed meanwhile forks nothing.
const BOMB: Step = Step {
    name: "fork-bomb",
    actions: &[
        Clear,
        Line("b() { b | b & }"),
        Prompt,
        Line("o() { while read k v; do [ $k = oom_kill ] && return $((v<1)); done; }"),
        Prompt,
        Line("b; echo grows-$((2+7))"),
        Shows("grows-9"),
        Line("until o </proc/vmstat; do :; done; echo killed-$((4+4))"),
        Eventually("killed-8"),
        Line("while set -- /proc/[0-9]*; [ $# -ge 20 ]; do :; done; echo gone-$((3+4))"),
        Eventually("gone-7"),
        Clear,
        Line("seq 3 | sed s/^/line-/"),
        Shows("line-3"),
        Prompt,
    ],
};

/// The end of the session.
const ENDING: &[Step] = &[
    Step { name: "exit", actions: &[Clear, Line("exit 7"), Shows("status=7")] },
    Step {
        name: "restored",
        actions: &[
            Line("stty -a | tr ' ;' '\\n' | grep -x -e icanon -e echo | sort | tr '\\n' +"),
            Shows("echo+icanon+"),
        ],
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
        self.tmux(&["capture-pane", "-p", "-J", "-t", "main"]).unwrap_or_default()
    }

    /// Waits until the screen is as it must be.
    fn waits_for(
        &self,
        what: &str,
        patience: Duration,
        is_right: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let until = Instant::now() + patience;
        loop {
            let text = self.text();
            if is_right(&text) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("waited for {what}; the screen:\n{}", text.trim_end()));
            }
            thread::sleep(INTERVAL);
        }
    }

    fn waits_for_prompt(&self, patience: Duration) -> Result<(), String> {
        self.waits_for("a prompt", patience, |text| text.trim_end().lines().last() == Some(PROMPT))
    }

    fn perform(&self, action: &Action) -> Result<(), String> {
        match *action {
            Line(text) => {
                self.perform(&Typed(text))?;
                self.perform(&Key("Enter"))
            }
            Typed(text) => {
                let until = Instant::now() + PATIENCE;
                loop {
                    self.perform(&Text(text))?;
                    // A prompt that is waited for next is a new one then.
                    let typed = self.waits_for(text, RESPONSE, |screen| screen.trim_end().ends_with(text));
                    if typed.is_ok() || Instant::now() > until {
                        return typed;
                    }
                    self.perform(&Key("C-u"))?;
                }
            }
            Clear => {
                self.perform(&Line("clear"))?;
                self.waits_for("an empty screen", PATIENCE, |screen| screen.trim() == PROMPT)
            }
            Text(text) => self.tmux(&["send-keys", "-t", "main", "-l", text]).map(drop),
            Key(name) => self.tmux(&["send-keys", "-t", "main", name]).map(drop),
            Until(key, text) => {
                let until = Instant::now() + PATIENCE;
                loop {
                    self.perform(&Key(key))?;
                    let shown = self.waits_for(text, RESPONSE, |screen| screen.contains(text));
                    if shown.is_ok() || Instant::now() > until {
                        return shown;
                    }
                }
            }
            Shows(text) => {
                self.waits_for(text, PATIENCE, |screen| screen.lines().any(|line| line.contains(text)))
            }
            Eventually(text) => {
                self.waits_for(text, LONG_PATIENCE, |screen| screen.lines().any(|line| line.contains(text)))
            }
            Prompt => self.waits_for_prompt(PATIENCE),
            Resize(columns, rows) => {
                self.tmux(&["resize-window", "-t", "main", "-x", columns, "-y", rows]).map(drop)
            }
        }
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
    let program: PathBuf = arguments.starling.clone().unwrap_or_else(|| place.root().join("starling"));
    let line = format!("'{}' run --cpus 2 --memory 256M; echo \"status=$?\"; exec sh", program.display());
    let screen = Screen { socket: format!("starling-{}", std::process::id()) };
    // Without tmux there is nothing to test, and that is a failure: `./starling test` sees to it that it is there.
    screen.tmux(&["new-session", "-d", "-s", "main", "-x", "80", "-y", "24", "sh", "-c", &line])?;
    let start = screen.waits_for_prompt(START_PATIENCE);
    tally.record("terminal/prompt", "cpus 2", start.as_ref().err().map_or("", String::as_str));
    if start.is_err() {
        return Ok(());
    }
    for step in STEPS.iter().chain(arguments.long.then_some(&BOMB)).chain(ENDING) {
        let result = step.actions.iter().try_for_each(|action| screen.perform(action));
        let name = format!("terminal/{}", step.name);
        tally.record(&name, "cpus 2", result.as_ref().err().map_or("", String::as_str));
        if result.is_err() {
            // What follows would be typed at who knows what.
            return Ok(());
        }
    }
    Ok(())
}
