//! The controller `io`: what a group may transfer to and from disks in a second, and what it has transferred. Who does that is the disk's
//! queue ([`block::control`]); here are the files. A group is known there by its account, which it has while this controller or `memory` is handed on to it.

use alloc::sync::Arc;
use core::fmt::Write;

use block::control::{Rates, Transferred, UNLIMITED};
use block::registry::{self, BlockDevice, DeviceNumber};
use memory::charge::AccountNumber;
use vfs::text::Text;
use vfs::{Error, Result};

use crate::attach::Opener;
use crate::group::Group;
use crate::interface::line;

/// Names of limits, in the order in which they are shown, which is that of [`block::control::Rate`].
const RATES: [&str; 4] = ["rbps", "wbps", "riops", "wiops"];

fn own(group: &Group) -> Result<AccountNumber> {
    group.account.lock().as_ref().map(|account| account.number()).ok_or(Error::NoDevice)
}

/// Whole disks, in the order they came.
fn each_disk(mut each: impl FnMut(&Arc<BlockDevice>)) {
    registry::for_each(|device| {
        if device.whole().is_none() {
            each(device);
        }
    });
}

/// Limits of the account hold no more, on any disk. It was closed before.
pub(crate) fn forget(account: AccountNumber) {
    each_disk(|disk| disk.volume().queue().forget_account(account));
}

pub(crate) fn show_maximum(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let account = own(group)?;
    each_disk(|disk| {
        let rates = disk.volume().queue().rates(account);
        if rates == [UNLIMITED; 4] {
            return;
        }
        let number = disk.number();
        let _ = write!(out, "{}:{}", number.major, number.minor);
        for (name, rate) in RATES.iter().zip(rates) {
            let _ = match rate {
                UNLIMITED => write!(out, " {name}=max"),
                rate => write!(out, " {name}={rate}"),
            };
        }
        line(out, format_args!(""));
    });
    Ok(())
}

/// `MAJOR:MINOR`.
fn parse_number(word: &[u8]) -> Result<DeviceNumber> {
    let colon = word.iter().position(|&byte| byte == b':').ok_or(Error::Invalid)?;
    let part = |digits: &[u8]| {
        let text = core::str::from_utf8(digits).map_err(|_| Error::Invalid)?;
        text.parse::<u32>().map_err(|_| Error::Invalid)
    };
    Ok(DeviceNumber { major: part(&word[..colon])?, minor: part(&word[colon + 1..])? })
}

/// Changes what words such as `rbps=1048576 wiops=max` say.
fn change<'a>(mut rates: Rates, words: impl Iterator<Item = &'a [u8]>) -> Result<Rates> {
    for word in words {
        let equals = word.iter().position(|&byte| byte == b'=').ok_or(Error::Invalid)?;
        let (name, value) = (&word[..equals], &word[equals + 1..]);
        let rate = if value == b"max" {
            UNLIMITED
        } else {
            let text = core::str::from_utf8(value).map_err(|_| Error::Invalid)?;
            text.parse::<u64>().map_err(|_| Error::Invalid)?
        };
        if rate == 0 {
            return Err(Error::Range);
        }
        let place = RATES.iter().position(|known| known.as_bytes() == name).ok_or(Error::Invalid)?;
        rates[place] = rate;
    }
    Ok(rates)
}

pub(crate) fn set_maximum(group: &Arc<Group>, _opener: &Opener, text: &[u8]) -> Result<()> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = parse_number(words.next().ok_or(Error::Invalid)?)?;
    let disk = registry::find(number).filter(|disk| disk.whole().is_none()).ok_or(Error::NoDevice)?;
    // Kept while it is used: the group may be removed meanwhile.
    let account = group.account.lock().clone().ok_or(Error::NoDevice)?;
    let queue = disk.volume().queue();
    let rates = change(queue.rates(account.number()), words)?;
    queue.set_rates(account.number(), rates).map_err(|error| match error {
        block::Error::OutOfMemory => Error::OutOfMemory,
        _ => Error::NoDevice,
    })
}

pub(crate) fn show_statistics(group: &Arc<Group>, out: &mut Text) -> Result<()> {
    let account = match own(group) {
        Ok(account) => Some(account),
        Err(_) if group.is_root() => None,
        Err(error) => return Err(error),
    };
    each_disk(|disk| {
        let transferred = match account {
            Some(account) => disk.volume().queue().transferred(account),
            None => of_all(disk),
        };
        if let Some([(read, reads), (written, writes), (discarded, discards)]) = transferred {
            let number = disk.number();
            line(
                out,
                format_args!(
                    "{}:{} rbytes={read} wbytes={written} rios={reads} wios={writes} dbytes={discarded} dios={discards}",
                    number.major, number.minor
                ),
            );
        }
    });
    Ok(())
}

/// What a disk has transferred for everybody, if anything.
fn of_all(disk: &BlockDevice) -> Option<Transferred> {
    let counts = disk.statistics();
    let of = |kind: usize| (counts.sectors[kind] * block::SECTOR_BYTES as u64, counts.completed[kind]);
    let all = [of(0), of(1), of(2)];
    all.iter().any(|&(_, number)| number > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(line: &[u8]) -> Result<Rates> {
        let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        change([1, 2, 3, 4], words)
    }

    #[test]
    fn words_change_what_they_name() {
        assert_eq!(changed(b""), Ok([1, 2, 3, 4]));
        assert_eq!(changed(b"wbps=max riops=77"), Ok([1, UNLIMITED, 77, 4]));
        assert_eq!(changed(b"rbps=0"), Err(Error::Range));
        for wrong in [&b"rbps"[..], b"rbps=", b"rbps=-1", b"rbps=1M", b"speed=1"] {
            assert_eq!(changed(wrong), Err(Error::Invalid), "{wrong:?}");
        }
        assert_eq!(parse_number(b"8:16"), Ok(DeviceNumber { major: 8, minor: 16 }));
        for wrong in [&b"8"[..], b"8:", b":1", b"a:b", b"8:1:2"] {
            assert!(parse_number(wrong).is_err());
        }
    }
}
