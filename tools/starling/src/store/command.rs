//! `starling image`: what is in the store.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ImageName, Store, build, debian, disk, space_tools};
use crate::failure::{Failure, Outcome};
use crate::image::oci::Choice;
use crate::progress::Progress;

/// Keep images by name, for `starling run NAME`.
#[derive(Args, Debug)]
pub(crate) struct ImageArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Take an image into the store and print its digest
    Build {
        /// Its name there, NAME or NAME:TAG
        #[arg(value_parser = parse_name)]
        name: ImageName,
        /// A root file system or image in any form that `starling run` takes; without one, debian or debian:SUITE is made
        /// from packages
        source: Option<PathBuf>,
        /// Which image, if the source has several: its name there
        #[arg(long, value_name = "NAME", requires = "source")]
        from: Option<String>,
        /// Packages of Debian to install besides those that every Debian has
        #[arg(long, value_name = "PACKAGE,...", value_delimiter = ',', conflicts_with = "source")]
        include: Vec<String>,
    },
    /// Make an ext4 of Debian's packages in a file, keep it, and print its path
    Disk {
        /// debian, or debian:SUITE
        #[arg(value_parser = parse_name)]
        name: ImageName,
        /// Packages to install besides those that every Debian has
        #[arg(long, value_name = "PACKAGE,...", value_delimiter = ',')]
        include: Vec<String>,
        /// Packages whose sources are to be in /usr/src/debian
        #[arg(long, value_name = "PACKAGE,...", value_delimiter = ',')]
        sources: Vec<String>,
    },
    /// Make the tools for private name spaces (bind, newns, nsdup) in a directory, for `starling run --volume`
    Tools {
        /// Where
        directory: PathBuf,
    },
    /// List the images
    Ls,
    /// Remove images
    Rm {
        /// Their names
        #[arg(required = true, value_parser = parse_name)]
        names: Vec<ImageName>,
    },
}

fn parse_name(text: &str) -> Result<ImageName, String> {
    text.parse().map_err(|failure: Failure| failure.to_string())
}

/// Runs the command and returns the exit status.
///
/// # Errors
/// When it cannot be done.
pub(crate) fn image(arguments: &ImageArguments) -> Outcome<u8> {
    let text = match &arguments.command {
        Command::Build { name, source, from, include } => {
            let progress = Progress::new();
            let choice = from.as_deref().map_or(Choice::Only, Choice::Named);
            let store = Store::writable()?;
            let digest = match source {
                Some(source) => build::build(&store, name, source, choice, &progress)?,
                None => debian::make(&store, name, include, &progress)?,
            };
            progress.finish();
            format!("{digest}\n")
        }
        Command::Disk { name, include, sources } => {
            let progress = Progress::new();
            let file = disk::make(name, include, sources, &progress)?;
            progress.finish();
            format!("{}\n", file.display())
        }
        Command::Tools { directory } => {
            space_tools::make(directory)?;
            String::new()
        }
        Command::Ls => list()?,
        Command::Rm { names } => {
            Store::writable()?.remove(names)?;
            String::new()
        }
    };
    // A closed standard output is no reason to fail.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(0)
}

/// A line for each image, under a heading.
fn list() -> Outcome<String> {
    let images = Store::existing()?.map_or_else(|| Ok(Vec::new()), |store| store.list())?;
    let width = images.iter().map(|image| image.name.len()).max().unwrap_or(0).max("NAME".len());
    let mut text = format!("{:width$}  {:12}  {:>8}\n", "NAME", "DIGEST", "SIZE");
    for image in images {
        let size = format!("{:.1}M", image.bytes as f64 / f64::from(1 << 20));
        text += &format!("{:width$}  {:12}  {size:>8}\n", image.name, image.digest.short());
    }
    Ok(text)
}
