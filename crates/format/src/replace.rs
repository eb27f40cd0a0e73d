//! Writing a file so that nobody ever sees half of it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

const SUFFIX: &str = ".partial";

/// Has `write` write a file under a temporary name beside `path`, then moves it there. On an error nothing is left
/// behind, and what was at `path` stays; a map of the old file stays whole. A link is followed. What is there and is no
/// file, such as a pipe, is written to directly.
///
/// Only a process that is killed leaves its `.NAME.PID-N.partial`. The next one that writes there deletes it.
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
    let target = target(path);
    sweep(&target);
    let (partial, mut file) = create_beside(&target).map_err(&io)?;
    let written = fill(&mut file)
        .and_then(|()| file.sync_all().map_err(&io))
        .and_then(|()| fs::rename(&partial, &target).map_err(&io));
    if written.is_err() {
        fs::remove_file(&partial).ok(); // the first error is the one worth telling
    }
    written
}

/// Where a file of that name really is: a link is followed.
pub(crate) fn target(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// What the names of all temporary files for `path` begin with.
fn prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// A new file beside `path`, locked as long as it is open. Processes in different containers may share a number.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    path.file_name().ok_or_else(|| io::Error::other("expected a file name, found none"))?;
    for attempt in 0u32.. {
        let mut name = prefix(path);
        name.push(format!("{}-{attempt}{SUFFIX}", std::process::id()));
        let partial = path.with_file_name(name);
        let file = match File::create_new(&partial) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        };
        // Where the file system has no locks, leftovers stay.
        let _ = file.lock();
        // Before it was locked it looked like a leftover.
        if partial.exists() {
            return Ok((partial, file));
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Deletes temporary files for `path` that nobody has locked: their writers were killed. What fails is left.
fn sweep(path: &Path) {
    let prefix = prefix(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let bytes = name.as_encoded_bytes();
        let ours = bytes
            .strip_prefix(prefix.as_encoded_bytes())
            .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        let ours = ours.is_some_and(|id| id.iter().all(|b| b.is_ascii_digit() || *b == b'-'));
        if ours && entry.file_type().is_ok_and(|t| t.is_file()) {
            let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
            if file.try_lock().is_ok() {
                let _ = fs::remove_file(entry.path()); // still locked: whoever waits for it sees that it is gone
            }
        }
    }
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
    fn leftovers_of_killed_processes_go_and_files_in_work_stay() {
        let dir = scratch("leftover");
        let path = dir.join("a");
        let leftovers = [format!(".a.{}-0.partial", std::process::id()), ".a.1-12.partial".into()];
        let others = [".a.x.partial", ".b.1-0.partial", ".a.1-0.partial.old", "a.1-0.partial"];
        for name in leftovers.iter().map(String::as_str).chain(others) {
            fs::write(dir.join(name), "half").unwrap();
        }
        replace(&path, |e| e, |out| out.write_all(b"outer").and_then(|()| put(&path, "inner"))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "outer", "both were written, the outer one last");
        let exists = |name: &str| dir.join(name).exists();
        assert!(!leftovers.iter().any(|name| exists(name)) && others.iter().all(|name| exists(name)));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1 + others.len());
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
