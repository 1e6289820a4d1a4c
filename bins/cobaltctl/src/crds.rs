//! `cobaltctl crds`: the definitions our programs need in a cluster.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use cobalt_core::api::crd;

/// Prints the CustomResourceDefinitions as YAML.
///
/// Install them with: cobaltctl crds | kubectl apply --server-side -f -
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Write one file per definition into this directory instead, and make it if it is not there
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Prints the definitions, or writes them and prints the names of the files.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), CrdsError> {
    let Some(directory) = &args.output else {
        return out.write_all(crd::to_yaml().as_bytes()).map_err(CrdsError::Print);
    };
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |cause| CrdsError::Write { path, cause }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    for definition in crd::all() {
        let path = directory.join(crd::file_name(&definition));
        fs::write(&path, crd::document(&definition)).map_err(failed(&path))?;
        writeln!(out, "{}", path.display()).map_err(CrdsError::Print)?;
    }
    Ok(())
}

/// Why the definitions were not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CrdsError {
    /// A file or the directory could not be written.
    #[error("write {} (choose another directory with --output)", path.display())]
    Write {
        /// What could not be written.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Standard output could not be written.
    #[error("print the definitions")]
    Print(#[source] io::Error),
}
