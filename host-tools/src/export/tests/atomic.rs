//! An export that fails, however it fails, leaves no file, and an old file as it was.

use super::*;
use crate::error::Class;
use crate::export::Progress;
use std::fs;
use std::sync::atomic::Ordering;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn stopping_at_any_moment_leaves_the_old_file_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let options = options(&folder, DType::F16, Format::V2);
    fs::write(&options.out, b"old").unwrap();
    let count = std::cell::Cell::new(0);
    let try_until = |last: usize| {
        let cancel = AtomicBool::new(false);
        count.set(0);
        run(&source, &options, &cancel, &mut |_: Progress| {
            count.set(count.get() + 1);
            if count.get() == last {
                cancel.store(true, Ordering::Relaxed);
            }
        })
    };
    let mut stopped = 0;
    while let Err(error) = try_until(stopped + 1) {
        assert_eq!(error.class(), Class::Cancelled);
        assert_eq!(names(folder.path()), ["made.f16.2.dmexp"]);
        assert_eq!(fs::read(&options.out).unwrap(), b"old");
        stopped += 1;
    }
    assert_eq!(stopped, count.get());
    assert!(stopped > 50, "{stopped}");
    assert_eq!(names(folder.path()), ["made.f16.2.dmexp"]);
    assert!(Loaded::open(&options.out).is_ok());
}

#[test]
fn a_refused_weight_leaves_the_old_file() {
    let folder = TempDir::new().unwrap();
    let options = options(&folder, DType::F16, Format::V1);
    fs::write(&options.out, b"old").unwrap();
    // The last weight of all.
    let last = SMALL.params() - 1;
    export(&open(SMALL.v0(|place| if place == last { 1e9 } else { 0.0 })), &options).unwrap_err();
    assert_eq!(names(folder.path()), ["made.f16.1.dmexp"]);
    assert_eq!(fs::read(&options.out).unwrap(), b"old");
}

#[test]
fn targets_that_cannot_be_written_are_refused_first() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let to = |out: PathBuf| export(&source, &Options::new(out)).unwrap_err();
    let error = to(folder.path().join("missing/x.dmexp"));
    assert_eq!(error.class(), Class::Unwritable);
    assert!(error.to_string().contains("folder does not exist"), "{error}");
    assert!(to(folder.path().to_path_buf()).to_string().contains("is a folder"));
    let file = folder.path().join("file");
    fs::write(&file, b"old").unwrap();
    assert_eq!(to(file.join("x.dmexp")).class(), Class::Unwritable);
    let mut permissions = fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&file, permissions).unwrap();
    assert!(to(file.clone()).to_string().contains("write-protected"));
    assert_eq!(fs::read(&file).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["file"]);
    #[cfg(unix)]
    assert!(to("/dev/null".into()).to_string().contains("not a regular file"));
}

#[cfg(unix)]
#[test]
fn a_folder_that_takes_no_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path().join("probe"), b"").is_ok() {
        println!("left out: this user may write to any folder");
        return;
    }
    let error = export(&open(SMALL.random()), &options(&folder, DType::F16, Format::V2)).unwrap_err();
    assert_eq!(error.class(), Class::Unwritable);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn the_checkpoint_itself_is_never_the_target() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.bin");
    fs::write(&path, SMALL.random()).unwrap();
    let source = checkpoint::open(&path).unwrap();
    let error = export(&source, &Options::new(folder.path().join(".").join("model.bin"))).unwrap_err();
    assert_eq!(error.class(), Class::Request);
    assert_eq!(fs::read(&path).unwrap(), SMALL.random());
}

#[cfg(unix)]
#[test]
fn the_new_file_is_readable_like_any_other_and_a_link_stays_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let plain = folder.path().join("plain");
    fs::write(&plain, b"old").unwrap();
    let link = folder.path().join("link.dmexp");
    std::os::unix::fs::symlink(&plain, &link).unwrap();
    export(&source, &Options { golden: false, ..Options::new(&link) }).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(Loaded::open(&plain).is_ok());
    let other = folder.path().join("other");
    fs::write(&other, b"").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&plain), mode(&other));
    // A name without a folder is in the current one: see that its folder is found.
    assert!(crate::target::Target::new(Path::new("x.dmexp"), []).is_ok());
}
