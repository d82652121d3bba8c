use std::path::PathBuf;

use super::*;

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("dunlin-power-disk-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn write_is_readable_at_once_and_on_disk_after_its_sync() {
    let dir = dir("synced");
    let (disk, path) = (PowerLossDisk::default(), dir.join("file"));
    let file = disk.create(&path).unwrap();
    file.write_at(&[b"abc", b"def"], 2).unwrap();
    file.write_at(&[b"X"], 3).unwrap();
    let second_handle = disk.open(&path, false).unwrap();
    let mut out = [9; 10];
    assert_eq!((second_handle.read_at(&mut out, 0).unwrap(), &out[..8]), (8, &b"\0\0aXcdef"[..]));
    assert_eq!((second_handle.bytes().unwrap(), std::fs::read(&path).unwrap()), (8, vec![]));
    file.sync().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"\0\0aXcdef");
    file.write_at(&[b"lost"], 0).unwrap();
    file.set_bytes(3).unwrap();
    assert_eq!((second_handle.read_at(&mut out, 0).unwrap(), &out[..3]), (3, &b"los"[..]));
    assert_eq!(std::fs::read(&path).unwrap(), b"\0\0a", "no power, no write");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn full_disk_refuses_file_growth_until_it_has_room() {
    let dir = dir("full");
    let faults = Arc::new(DiskFaults::default());
    let disk = PowerLossDisk::new(Arc::clone(&faults));
    let file = disk.create(&dir.join("file")).unwrap();
    file.set_bytes(10).unwrap();
    faults.apply("full");
    file.write_at(&[b"0123456789"], 0).unwrap();
    assert_eq!(file.write_at(&[b"0"], 10).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.create(&dir.join("other")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.free_bytes(&dir).unwrap(), 0);
    faults.apply("well");
    file.write_at(&[b"0"], 10).unwrap();
    faults.apply("broken");
    assert!(file.sync().is_err());
    std::fs::remove_dir_all(dir).unwrap();
}
