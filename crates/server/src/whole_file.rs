//! Reads whole files for which a user states the path, such as configurations, users files and certificates. The size
//! of a file is limited.

use std::fs::{File, metadata};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Largest file that `read_file` and `read_input` read, bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads a regular file of at most 16 MiB. Fails for a pipe or device, because reading it could block forever or use up
/// the memory.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_file_up_to(path, FILE_BYTES_MAX)
}

/// Like `read_file`, but the file must contain UTF-8 text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_file(path)?);
    text.map_err(|_| io::Error::new(ErrorKind::InvalidData, "the file is not UTF-8"))
}

/// Reads at most 16 MiB as a command's input. Unlike `read_file`, also reads a pipe, such as a shell's `<(command)`.
pub fn read_input(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, FILE_BYTES_MAX)
}

/// Like `read_file`, but with a limit of `bytes_max` bytes.
pub fn read_file_up_to(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    check_is_file(path)?;
    read_up_to(path, bytes_max)
}

fn read_up_to(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Reads one byte beyond the limit, in order to notice a file that is too large, even if it grows meanwhile.
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("the file has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Fails if `path` is not a regular file.
pub(crate) fn check_is_file(path: &Path) -> io::Result<()> {
    match metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("the path is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_larger_than_the_byte_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_file_up_to(&path, 5).unwrap(), b"12345");
        let refused = read_file_up_to(&path, 4).unwrap_err();
        assert_eq!(refused.to_string(), "the file has more than 4 bytes");
        assert_eq!(read_text(&path).unwrap(), "12345");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn reading_a_device_or_directory_as_a_file_is_refused() {
        for path in ["/dev/zero", "/"] {
            let refused = read_file(Path::new(path)).unwrap_err();
            assert!(refused.to_string().contains("not a regular file"), "{path}: {refused}");
        }
        assert_eq!(read_file(Path::new("/nonexistent")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
