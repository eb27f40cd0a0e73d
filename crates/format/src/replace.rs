//! Writing a file so that nobody ever sees half of it.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Has `write` write a file under a temporary name beside `path`, then moves it there. On an error nothing is left
/// behind, and what was at `path` stays; a map of the old file stays whole. A link is followed. What is there and is no
/// file, such as a pipe, is written to directly.
///
/// Only a process that is killed leaves its `.NAME.PID.partial`, which can be deleted.
///
/// # Errors
/// What `write` says, and what `io` makes of the system's error if the file cannot be created, filled or moved.
pub fn replace<E>(
    path: &Path,
    io: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let fill = |file: &mut File| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush().map_err(&io)
    };
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let mut out = File::options().write(true).open(path).map_err(&io)?;
        return fill(&mut out);
    }
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (partial, mut file) = create_beside(&target).map_err(&io)?;
    let written = fill(&mut file)
        .and_then(|()| file.sync_all().map_err(&io))
        .and_then(|()| fs::rename(&partial, &target).map_err(&io));
    if written.is_err() {
        fs::remove_file(&partial).ok(); // the first error is the one worth telling
    }
    written
}

/// A new file beside `path`. Its name is free even where a process of the same number was killed before.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("expected a file name, found none"))?;
    for attempt in 0u32.. {
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(match attempt {
            0 => format!(".{}.partial", std::process::id()),
            n => format!(".{}-{n}.partial", std::process::id()),
        });
        let partial = path.with_file_name(partial);
        match File::create_new(&partial) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (partial, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("nibble-replace-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn put(path: &Path, text: &str) -> io::Result<()> {
        replace(path, |e| e, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn an_error_keeps_the_old_file_and_leaves_nothing_else() {
        let dir = scratch("error");
        let path = dir.join("a");
        put(&path, "old").unwrap();
        let half = |out: &mut dyn Write| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        };
        replace(&path, |e| e, half).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert!(put(&dir, "a directory is no file").is_err());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_leftover_of_a_killed_process_is_no_obstacle() {
        let dir = scratch("leftover");
        let path = dir.join("a");
        let leftover = dir.join(format!(".a.{}.partial", std::process::id()));
        fs::write(&leftover, "half").unwrap();
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(&leftover).unwrap(), "half");
        fs::remove_dir_all(dir).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_what_is_no_file_stays() {
        use std::os::unix::fs::FileTypeExt;
        let dir = scratch("link");
        let (file, link) = (dir.join("file"), dir.join("link"));
        put(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        put(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let socket = dir.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        put(&socket, "a socket cannot be opened, and is not replaced").unwrap_err();
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        fs::remove_dir_all(dir).unwrap();
    }
}
