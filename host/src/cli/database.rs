//! Whether `--db` can name a database, before anything is opened: what SQLite says of it teaches nobody.

use std::fs;
use std::path::Path;

use super::failure::Failure;

pub fn check(db: &Path) -> Result<(), Failure> {
    let refuse = |what: String| Err(Failure::argument(format!("--db {}: {what}", db.display())));
    let name = db.to_string_lossy();
    if name.is_empty() {
        return refuse("it names no file".into());
    }
    if name == ":memory:" || name.starts_with("file:") {
        return refuse(
            "a database is a file, named by its path: another process answers what this one asks. \
             `holdpoint try` runs a node without one"
                .into(),
        );
    }
    if db.is_dir() {
        return refuse("it is a folder; name a file in it".into());
    }
    let folder = db.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(folder) {
        Err(error) => refuse(format!("its folder {} is not there: {error}; make it first", folder.display())),
        Ok(about) if !about.is_dir() => refuse(format!("{} is no folder", folder.display())),
        // By its mode: who is root may write all the same, and should be told before others cannot.
        Ok(about) if about.permissions().readonly() => refuse(format!(
            "its folder {} cannot be written to, and SQLite keeps files of its own beside the database; allow it \
             (chmod u+w), or name a file elsewhere",
            folder.display()
        )),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_database_is_told_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let (file, locked) = (dir.path().join("file"), dir.path().join("locked"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&locked).unwrap();
        let mut mode = fs::metadata(&locked).unwrap().permissions();
        mode.set_readonly(true);
        fs::set_permissions(&locked, mode).unwrap();
        for (db, part) in [
            (Path::new(":memory:").to_owned(), "holdpoint try"),
            (Path::new("file:x?mode=memory").to_owned(), "named by its path"),
            (Path::new("").to_owned(), "names no file"),
            (dir.path().to_owned(), "it is a folder"),
            (dir.path().join("none/h.db"), "make it first"),
            (file.join("h.db"), "is no folder"),
            (locked.join("h.db"), "cannot be written to"),
        ] {
            let said = check(&db).unwrap_err().to_string();
            assert!(said.contains(part), "{}: {said}", db.display());
        }
        assert!(check(&dir.path().join("h.db")).is_ok() && check(Path::new("h.db")).is_ok());
    }
}
