//! The ioctls of terminals (ioctl_tty(2)).
//!
//! Those of pseudo-terminal masters that concern the terminal itself act on the slave.

use alloc::sync::Arc;

use machine::address::UserAddr;
use machine::user_memory;
use vfs::{Error, Result};

use crate::job_control::{Caller, GroupId, JobControl, TtySignal, job_control};
use crate::pseudo::Master;
use crate::terminal::{Terminal, WindowSize};
use crate::termios::{TERMIO_BYTES, TERMIOS_BYTES, TERMIOS2_BYTES, Termios};

const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TCSETSW: u32 = 0x5403;
const TCSETSF: u32 = 0x5404;
const TCGETA: u32 = 0x5405;
const TCSETA: u32 = 0x5406;
const TCSETAW: u32 = 0x5407;
const TCSETAF: u32 = 0x5408;
const TCSBRK: u32 = 0x5409;
const TCXONC: u32 = 0x540a;
const TCFLSH: u32 = 0x540b;
const TIOCEXCL: u32 = 0x540c;
const TIOCNXCL: u32 = 0x540d;
const TIOCSCTTY: u32 = 0x540e;
const TIOCGPGRP: u32 = 0x540f;
const TIOCSPGRP: u32 = 0x5410;
const TIOCOUTQ: u32 = 0x5411;
const TIOCSTI: u32 = 0x5412;
const TIOCGWINSZ: u32 = 0x5413;
const TIOCSWINSZ: u32 = 0x5414;
const TIOCGSOFTCAR: u32 = 0x5419;
const TIOCSSOFTCAR: u32 = 0x541a;
const FIONREAD: u32 = 0x541b;
const TIOCPKT: u32 = 0x5420;
const TIOCNOTTY: u32 = 0x5422;
const TIOCSETD: u32 = 0x5423;
const TIOCGETD: u32 = 0x5424;
const TCSBRKP: u32 = 0x5425;
const TIOCSBRK: u32 = 0x5427;
const TIOCCBRK: u32 = 0x5428;
const TIOCGSID: u32 = 0x5429;
const TCGETS2: u32 = 0x802c_542a;
const TCSETS2: u32 = 0x402c_542b;
const TCSETSW2: u32 = 0x402c_542c;
const TCSETSF2: u32 = 0x402c_542d;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TIOCGDEV: u32 = 0x8004_5432;
const TIOCSIG: u32 = 0x4004_5436;
const TIOCVHANGUP: u32 = 0x5437;
const TIOCGPKT: u32 = 0x8004_5438;
const TIOCGPTLCK: u32 = 0x8004_5439;
const TIOCGEXCL: u32 = 0x8004_5440;
const TIOCGLCKTRMIOS: u32 = 0x5456;
const TIOCSLCKTRMIOS: u32 = 0x5457;

/// The one line discipline there is, N_TTY.
const LINE_DISCIPLINE: i32 = 0;
/// In `c_cflag`: the line has no modem.
const CLOCAL: u32 = 0o4000;

fn put(argument: UserAddr, bytes: &[u8]) -> Result<usize> {
    user_memory::write(argument, bytes).map_err(|_| Error::BadAddress)?;
    Ok(0)
}

fn put_number(argument: UserAddr, value: u32) -> Result<usize> {
    put(argument, &value.to_ne_bytes())
}

fn get<const BYTES: usize>(argument: UserAddr) -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    user_memory::read(&mut bytes, argument).map_err(|_| Error::BadAddress)?;
    Ok(bytes)
}

fn get_number(argument: UserAddr) -> Result<i32> {
    Ok(i32::from_ne_bytes(get(argument)?))
}

/// When a change of attributes takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Now,
    Drained,
    DrainedAndFlushed,
}

/// An ioctl on a terminal, which has not been hung up.
pub(crate) fn terminal(terminal: &Arc<Terminal>, command: u32, argument: UserAddr) -> Result<usize> {
    match command {
        TIOCSCTTY => take_control(terminal, argument.as_u64() == 1),
        TIOCNOTTY => give_up_control(terminal),
        TIOCGPGRP => foreground_group(terminal, argument, true),
        TIOCSPGRP => set_foreground_group(terminal, argument),
        TIOCGSID => session(terminal, argument, true),
        TIOCSTI => simulate_input(terminal, argument),
        TIOCVHANGUP => {
            privileged_caller()?;
            terminal.cut_off();
            Ok(0)
        }
        _ => any_side(terminal, command, argument, true),
    }
}

/// An ioctl on the master side of a pseudo-terminal.
pub(crate) fn master(master: &Master, command: u32, argument: UserAddr) -> Result<usize> {
    let pair = master.pair();
    match command {
        TIOCGPTN => put_number(argument, pair.number()),
        TIOCSPTLCK => {
            pair.set_locked(get_number(argument)? != 0);
            Ok(0)
        }
        TIOCGPTLCK => put_number(argument, pair.is_locked().into()),
        TIOCPKT => {
            master.set_packet_mode(get_number(argument)? != 0);
            Ok(0)
        }
        TIOCGPKT => put_number(argument, master.packet_mode().into()),
        TIOCSIG => send_signal(master.slave(), argument),
        FIONREAD => put_number(argument, master.slave().state.lock().output.len() as u32),
        TIOCGPGRP => foreground_group(master.slave(), argument, false),
        TIOCSPGRP => set_foreground_group(master.slave(), argument),
        TIOCGSID => session(master.slave(), argument, false),
        _ => any_side(master.slave(), command, argument, false),
    }
}

/// What works on the terminal and through the master side alike; `from_terminal` says which.
fn any_side(terminal: &Terminal, command: u32, argument: UserAddr, from_terminal: bool) -> Result<usize> {
    match command {
        TCGETS => put(argument, &terminal.termios().to_bytes()),
        TCGETS2 => put(argument, &terminal.termios().to_bytes2()),
        TCGETA => put(argument, &terminal.termios().to_short_bytes()),
        TCSETS | TCSETS2 | TCSETA => set_attributes(terminal, command, argument, Change::Now, from_terminal),
        TCSETSW | TCSETSW2 | TCSETAW => {
            set_attributes(terminal, command, argument, Change::Drained, from_terminal)
        }
        TCSETSF | TCSETSF2 | TCSETAF => {
            set_attributes(terminal, command, argument, Change::DrainedAndFlushed, from_terminal)
        }
        TCSBRK | TCSBRKP => {
            background_change(terminal, from_terminal)?;
            terminal.drain()?;
            Ok(0)
        }
        TIOCSBRK | TIOCCBRK => Ok(0),
        TCXONC => flow_control(terminal, argument.as_u64(), from_terminal),
        TCFLSH => {
            background_change(terminal, from_terminal)?;
            let (input, output) = match argument.as_u64() {
                0 => (true, false),
                1 => (false, true),
                2 => (true, true),
                _ => return Err(Error::Invalid),
            };
            terminal.flush(input, output);
            Ok(0)
        }
        TIOCEXCL | TIOCNXCL => {
            terminal.state.lock().exclusive = command == TIOCEXCL;
            Ok(0)
        }
        TIOCGEXCL => put_number(argument, terminal.state.lock().exclusive.into()),
        TIOCOUTQ => put_number(argument, terminal.state.lock().output.len() as u32),
        FIONREAD => put_number(argument, terminal.state.lock().line.readable_bytes() as u32),
        TIOCGWINSZ => window(terminal, argument),
        TIOCSWINSZ => set_window(terminal, argument),
        TIOCGETD => put_number(argument, LINE_DISCIPLINE as u32),
        TIOCSETD => match get_number(argument)? {
            LINE_DISCIPLINE => Ok(0),
            _ => Err(Error::Invalid),
        },
        TIOCGSOFTCAR => put_number(argument, (terminal.termios().control & CLOCAL != 0).into()),
        TIOCSSOFTCAR => set_soft_carrier(terminal, get_number(argument)? != 0),
        TIOCGLCKTRMIOS => {
            let locks = terminal.state.lock().locks;
            put(argument, &locks.to_bytes())
        }
        TIOCSLCKTRMIOS => lock_attributes(terminal, argument),
        TIOCGDEV => put_number(argument, terminal.name().major << 8 | terminal.name().minor & 0xff),
        _ => Err(Error::NotTerminal),
    }
}

fn background_change(terminal: &Terminal, from_terminal: bool) -> Result<()> {
    if from_terminal { terminal.check_job(TtySignal::BackgroundWrite) } else { Ok(()) }
}

fn set_attributes(
    terminal: &Terminal,
    command: u32,
    argument: UserAddr,
    change: Change,
    from_terminal: bool,
) -> Result<usize> {
    background_change(terminal, from_terminal)?;
    let previous = terminal.termios();
    let wanted = match command {
        TCSETS2 | TCSETSW2 | TCSETSF2 => Termios::from_bytes2(&get::<TERMIOS2_BYTES>(argument)?, &previous),
        TCSETA | TCSETAW | TCSETAF => Termios::from_short_bytes(&get::<TERMIO_BYTES>(argument)?, &previous),
        _ => Termios::from_bytes(&get::<TERMIOS_BYTES>(argument)?, &previous),
    };
    if change != Change::Now && from_terminal {
        terminal.drain()?;
    }
    if change == Change::DrainedAndFlushed {
        terminal.flush(true, false);
    }
    terminal.set_termios(wanted);
    Ok(0)
}

/// TIOCSSOFTCAR: whether the line counts as one without a modem.
fn set_soft_carrier(terminal: &Terminal, is_soft: bool) -> Result<usize> {
    let mut termios = terminal.termios();
    termios.control = if is_soft { termios.control | CLOCAL } else { termios.control & !CLOCAL };
    terminal.set_termios(termios);
    Ok(0)
}

/// TIOCSLCKTRMIOS: which attributes do not change any more, for nobody.
fn lock_attributes(terminal: &Terminal, argument: UserAddr) -> Result<usize> {
    privileged_caller()?;
    let locks = Termios::from_bytes(&get::<TERMIOS_BYTES>(argument)?, &Termios::unlocked());
    terminal.state.lock().locks = locks;
    Ok(0)
}

fn flow_control(terminal: &Terminal, action: u64, from_terminal: bool) -> Result<usize> {
    background_change(terminal, from_terminal)?;
    match action {
        0 => terminal.set_stopped(true),
        1 => terminal.set_stopped(false),
        // TCIOFF and TCION ask the other end to pause, which devices here need not be told.
        2 | 3 => {}
        _ => return Err(Error::Invalid),
    }
    Ok(0)
}

fn window(terminal: &Terminal, argument: UserAddr) -> Result<usize> {
    let window = terminal.window();
    let mut bytes = [0; 8];
    for (at, word) in [window.rows, window.columns, window.width, window.height].iter().enumerate() {
        bytes[at * 2..at * 2 + 2].copy_from_slice(&word.to_ne_bytes());
    }
    put(argument, &bytes)
}

fn set_window(terminal: &Terminal, argument: UserAddr) -> Result<usize> {
    let bytes: [u8; 8] = get(argument)?;
    let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    terminal.set_window(WindowSize { rows: word(0), columns: word(2), width: word(4), height: word(6) });
    Ok(0)
}

fn caller() -> Result<(&'static dyn JobControl, Caller)> {
    let control = job_control().ok_or(Error::NotTerminal)?;
    let caller = control.caller().ok_or(Error::NotTerminal)?;
    Ok((control, caller))
}

fn privileged_caller() -> Result<()> {
    if caller()?.1.privileged { Ok(()) } else { Err(Error::NotPermitted) }
}

/// TIOCSCTTY: the caller's session gets the terminal; a privileged caller with argument 1 may steal it.
fn take_control(terminal: &Arc<Terminal>, steal: bool) -> Result<usize> {
    let (control, caller) = caller()?;
    let current = terminal.session();
    if caller.leads_session && current == Some(caller.session) {
        return Ok(0);
    }
    if !caller.leads_session || control.controlling_terminal().is_some() {
        return Err(Error::NotPermitted);
    }
    if let Some(session) = current {
        if !(steal && caller.privileged) {
            return Err(Error::NotPermitted);
        }
        control.forget_terminal(session);
    }
    terminal.associate(caller.session, caller.group);
    control.set_controlling_terminal(Some(terminal.clone()));
    Ok(0)
}

/// TIOCNOTTY.
fn give_up_control(terminal: &Arc<Terminal>) -> Result<usize> {
    let (control, caller) = caller()?;
    let controlling = control.controlling_terminal();
    if !controlling.is_some_and(|controlling| Arc::ptr_eq(&controlling, terminal)) {
        return Err(Error::NotTerminal);
    }
    control.set_controlling_terminal(None);
    if caller.leads_session {
        terminal.disassociate(true);
    }
    Ok(0)
}

fn check_controls(terminal: &Terminal, must_control: bool) -> Result<()> {
    if must_control && terminal.session() != Some(caller()?.1.session) {
        return Err(Error::NotTerminal);
    }
    Ok(())
}

fn foreground_group(terminal: &Terminal, argument: UserAddr, must_control: bool) -> Result<usize> {
    check_controls(terminal, must_control)?;
    put_seen(argument, terminal.foreground().map_or(0, |group| group.0))
}

/// Tells the number of a group or session as the caller calls it.
fn put_seen(argument: UserAddr, number: u32) -> Result<usize> {
    put_number(argument, job_control().map_or(number, |control| control.seen_by_caller(number)))
}

fn session(terminal: &Terminal, argument: UserAddr, must_control: bool) -> Result<usize> {
    check_controls(terminal, must_control)?;
    let session = terminal.session().ok_or(Error::NotTerminal)?;
    put_seen(argument, session.0)
}

fn set_foreground_group(terminal: &Terminal, argument: UserAddr) -> Result<usize> {
    terminal.check_job(TtySignal::BackgroundWrite)?;
    let (control, caller) = caller()?;
    if terminal.session() != Some(caller.session) {
        return Err(Error::NotTerminal);
    }
    let number = u32::try_from(get_number(argument)?).map_err(|_| Error::Invalid)?;
    let group = GroupId(control.named_by_caller(number).ok_or(Error::NoProcess)?);
    match control.session_of_group(group) {
        None => return Err(Error::NoProcess),
        Some(session) if session != caller.session => return Err(Error::NotPermitted),
        Some(_) => {}
    }
    terminal.state.lock().foreground = Some(group);
    Ok(0)
}

/// TIOCSTI: types a character into one's own terminal (any terminal with privilege).
fn simulate_input(terminal: &Arc<Terminal>, argument: UserAddr) -> Result<usize> {
    let (control, caller) = caller()?;
    let own = control.controlling_terminal().is_some_and(|controlling| Arc::ptr_eq(&controlling, terminal));
    if !own && !caller.privileged {
        return Err(Error::NotPermitted);
    }
    let byte: [u8; 1] = get(argument)?;
    terminal.input(&byte);
    Ok(0)
}

/// TIOCSIG: sends a signal to the slave's foreground group.
fn send_signal(terminal: &Terminal, argument: UserAddr) -> Result<usize> {
    let signal = match argument.as_u64() {
        2 => TtySignal::Interrupt,
        3 => TtySignal::Quit,
        20 => TtySignal::Stop,
        _ => return Err(Error::Invalid),
    };
    terminal.signal_foreground(signal);
    Ok(0)
}
