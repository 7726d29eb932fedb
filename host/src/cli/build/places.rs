//! Where in the author's files something is that a tool tells by its place in the bundle: read from the source map
//! that esbuild writes beside it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::project::straight;

#[derive(Deserialize)]
struct Map {
    sources: Vec<String>,
    mappings: String,
}

/// A stretch of a line of the bundle: from which column on, and where that stands in which source.
struct Stretch {
    column: i64,
    source: usize,
    source_line: i64,
    source_column: i64,
}

pub struct Places {
    /// From the folder of the bundle.
    sources: Vec<PathBuf>,
    lines: Vec<Vec<Stretch>>,
}

impl Places {
    /// None where there is no map, or none that can be read: then places are told as the tool tells them.
    pub fn read(map: &Path, project: &Path) -> Option<Self> {
        let folder = map.parent()?;
        let Map { sources, mappings } = serde_json::from_str(&std::fs::read_to_string(map).ok()?).ok()?;
        let sources = sources.iter().map(|source| {
            let path = straight(&folder.join(source));
            path.strip_prefix(project).map(Path::to_owned).unwrap_or(path)
        });
        Some(Self { sources: sources.collect(), lines: lines(&mappings)? })
    }

    /// `x.js:4:10`, of a line and column of the bundle, both counted from 1.
    fn of(&self, line: usize, column: i64) -> Option<String> {
        let stretches = self.lines.get(line.checked_sub(1)?)?;
        let at = stretches.iter().rev().find(|stretch| stretch.column < column)?;
        let source = self.sources.get(at.source)?.display();
        Some(format!("{source}:{}:{}", at.source_line + 1, at.source_column + 1))
    }

    /// For the component itself, which tells where its errors come from: the sources, and for each line of the
    /// bundle the source and the line there.
    pub fn table(&self, sdk: &Path) -> serde_json::Value {
        let named = |source: &PathBuf| {
            let of_sdk = source.strip_prefix(sdk).ok().map(|path| Path::new("holdpoint-guest").join(path));
            // Where this machine keeps its files is no part of a component.
            let short = || if source.is_absolute() { source.file_name().map(PathBuf::from) } else { None };
            of_sdk.or_else(short).unwrap_or_else(|| source.clone()).display().to_string()
        };
        let line = |stretches: &Vec<Stretch>| stretches.first().map(|at| (at.source, at.source_line + 1));
        serde_json::json!({
            "files": self.sources.iter().map(named).collect::<Vec<_>>(),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }

    /// The text with every `/bundle.js:4:10` told as a place in a source.
    pub fn told(&self, text: &str) -> String {
        const BUNDLE: &str = "/bundle.js:";
        let mut parts = text.split(BUNDLE);
        let mut told = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(part.len());
            let mut numbers = part[..end].split(':');
            let (line, column) = (numbers.next(), numbers.next());
            let place =
                line.and_then(|line| line.parse().ok()).zip(column.and_then(|column| column.parse().ok()));
            match place.and_then(|(line, column)| self.of(line, column)) {
                Some(place) => told += &(place + &part[end..]),
                None => told += &format!("{BUNDLE}{part}"),
            }
        }
        told
    }
}

/// The stretches of each line; numbers in a map are the differences to those before.
fn lines(mappings: &str) -> Option<Vec<Vec<Stretch>>> {
    let (mut source, mut source_line, mut source_column) = (0, 0, 0);
    let mut lines = Vec::new();
    for line in mappings.split(';') {
        let mut column = 0;
        let mut stretches = Vec::new();
        for segment in line.split(',').filter(|segment| !segment.is_empty()) {
            let numbers = numbers(segment)?;
            column += numbers.first()?;
            // One number alone: of no source.
            let [_, of, at_line, at_column, ..] = numbers[..] else { continue };
            source += of;
            source_line += at_line;
            source_column += at_column;
            let source = usize::try_from(source).ok()?;
            stretches.push(Stretch { column, source, source_line, source_column });
        }
        lines.push(stretches);
    }
    Some(lines)
}

/// Base 64, five bits a digit, the lowest first; the sixth says that more follow. The lowest bit of all is the sign.
fn numbers(segment: &str) -> Option<Vec<i64>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0_i64, 0);
    for byte in segment.bytes() {
        let digit = i64::try_from(DIGITS.iter().position(|digit| *digit == byte)?).ok()?;
        number |= (digit & 31).checked_shl(shift)?;
        shift += 5;
        if digit & 32 == 0 {
            numbers.push(if number & 1 == 1 { -(number >> 1) } else { number >> 1 });
            (number, shift) = (0, 0);
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_bundle_is_told_as_one_in_the_source() {
        assert_eq!(numbers("AAgBC"), Some(vec![0, 0, 16, 1]));
        assert_eq!(numbers("D"), Some(vec![-1]));
        assert_eq!(numbers("!"), None);
        let dir = tempfile::tempdir().unwrap();
        let map = dir.path().join("target/guests/x/bundle.js.map");
        std::fs::create_dir_all(map.parent().unwrap()).unwrap();
        // Line 2 of the bundle: from its third column on it is line 3 of x.js.
        std::fs::write(&map, r#"{ "sources": ["../../../x.js"], "mappings": ";AAAA,EAEA" }"#).unwrap();
        let places = Places::read(&map, dir.path()).unwrap();
        let said = "TypeError\n    at prepare (/bundle.js:2:3)\n    at (/bundle.js:9:1)\n    at /bundle.js:2";
        assert_eq!(
            places.told(said),
            "TypeError\n    at prepare (x.js:3:1)\n    at (/bundle.js:9:1)\n    at /bundle.js:2"
        );
        assert_eq!(
            places.table(Path::new("/sdk")),
            serde_json::json!({ "files": ["x.js"], "lines": [null, [0, 1]] })
        );
        assert!(Places::read(Path::new("/nowhere/bundle.js.map"), dir.path()).is_none());
    }
}
