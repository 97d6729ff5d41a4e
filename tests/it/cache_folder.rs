//! Tests a cache folder that cannot be written to: the program works, says so once, and compiles
//! its knowledge at the first start alone.

use crate::turnstream;

#[test]
fn an_unwritable_cache_folder_is_logged_once_and_slows_one_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    // Not even root can make a folder within a file.
    std::fs::write(path("file"), "").expect("written");
    std::fs::create_dir(path("temporary")).expect("made");
    let toml = format!(
        "[log]\nkind = \"embedded\"\ndirectory = {:?}\n[models]\nembedder = \"none\"\n",
        path("log")
    );
    std::fs::write(path("turnstream.toml"), toml).expect("written");
    for compiled in [1, 0] {
        let mut run = turnstream(&["run", "--config"]);
        run.arg(path("turnstream.toml")).env("TMPDIR", path("temporary"));
        run.env("TURNSTREAM_CACHE", path("file").join("cache"));
        let run = run.output().expect("it starts");
        let log = String::from_utf8(run.stderr).expect("text");
        assert!(run.status.success(), "{log}");
        let said = |words: &str| log.matches(words).count();
        assert_eq!(said("cannot be written to ("), 1, "{log}");
        assert_eq!(said("compiling the shipped knowledge, once"), compiled, "{log}");
        assert_eq!(said(" WARN "), 1, "{log}");
    }
}
