//! `symbols LINKED IMAGE`: writes the bootable image of a linked kernel.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [linked, image] = arguments.as_slice() else {
        eprintln!("usage: symbols LINKED IMAGE");
        return ExitCode::from(2);
    };
    let result = std::fs::read(linked)
        .map_err(|error| error.to_string())
        .and_then(|bytes| symbols::bootable_image(&bytes).map_err(|error| error.to_string()))
        .and_then(|bytes| std::fs::write(image, bytes).map_err(|error| error.to_string()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("symbols: {}: {error}", linked.display());
            ExitCode::FAILURE
        }
    }
}
