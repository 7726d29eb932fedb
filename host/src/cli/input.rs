//! JSON on the command line: the text itself, `@FILE`, or `-` for standard input. Strict: what two
//! readers could understand differently is refused, with the reason.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde_json::Value;

use super::failure::Failure;
use crate::model::{InterruptId, Json, JsonBounds};

/// Reads what an argument stands for. `what` names the argument in errors.
pub fn json(what: &str, argument: &str, bounds: JsonBounds) -> Result<Json, Failure> {
    let refuse = |why: String| Err(Failure::Argument(why));
    let (text, source) = match argument.strip_prefix('@') {
        None if argument == "-" => match text(io::stdin(), bounds) {
            Ok(text) => (text, "standard input".to_owned()),
            Err(error) => return refuse(format!("{what}: cannot read standard input: {error}")),
        },
        None => (argument.to_owned(), String::new()),
        Some("") => return refuse(format!("{what}: '@' is followed by a file's name")),
        Some(file) => match std::fs::File::open(file).and_then(|open| text(open, bounds)) {
            Ok(text) => (text, file.to_owned()),
            Err(error) => return refuse(format!("{what}: cannot read {file}: {error}")),
        },
    };
    Json::parse(&text, bounds).or_else(|error| {
        let whose = if source.is_empty() { what.to_owned() } else { format!("{what} ({source})") };
        refuse(format!("{whose} is not taken: {error}{}", hint(argument, &source)))
    })
}

/// A map from interrupt ids to answers.
pub fn answers(
    what: &str,
    argument: &str,
    bounds: JsonBounds,
) -> Result<BTreeMap<InterruptId, Value>, Failure> {
    let map = json(what, argument, bounds)?;
    let Some(members) = map.members() else {
        return Err(Failure::Argument(format!(
            "{what} takes an object from interrupt ids to answers; this is {}",
            map.kind()
        )));
    };
    let mut answers = BTreeMap::new();
    for (key, value) in members {
        let id: InterruptId = key.parse().map_err(|error| Failure::Argument(format!("{what}: {error}")))?;
        if answers.insert(id, value.value()).is_some() {
            return Err(Failure::Argument(format!(
                "{what}: the interrupt {id} stands twice, differently spelled"
            )));
        }
    }
    Ok(answers)
}

/// One byte more than is taken, so that what is too large is refused as such and not read to its end.
fn text(source: impl Read, bounds: JsonBounds) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take((bounds.bytes_max as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > bounds.bytes_max {
        // It is refused for its length, wherever it was cut.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no UTF-8 text"))
}

/// Most who write no JSON here meant a string.
fn hint(argument: &str, source: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | '-' | '!' | '?' | ',');
    if source.is_empty() && !argument.is_empty() && argument.chars().all(is_word) {
        format!("; a string has quotes of its own: '\"{argument}\"'")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(argument: &str) -> String {
        match json("VALUE", argument, JsonBounds { bytes_max: 40, depth_max: 4 }) {
            Ok(json) => json.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn a_value_is_json_and_nothing_else() {
        assert_eq!(said(r#"{"b": 1.50, "a": null}"#), r#"{"a":null,"b":1.50}"#);
        assert_eq!(said("-7"), "-7");
        for (argument, part) in [
            ("approved", r#"'"approved"'"#),
            ("[1,", "VALUE is not taken"),
            (r#"{"a":1,"a":2}"#, "stands twice"),
            ("[[[[[1]]]]]", "deeper than 4"),
            ("@", "a file's name"),
            ("@/nowhere/x.json", "cannot read /nowhere/x.json"),
            (&format!("\"{}\"", "x".repeat(40)), "at most 40"),
        ] {
            let said = said(argument);
            assert!(said.contains(part), "{argument}: {said}");
        }
        assert!(!said("[1,").contains("quotes"), "a broken list is no forgotten string");
    }

    #[test]
    fn answers_are_by_id() {
        let bounds = JsonBounds::TRUSTED;
        let id = "00000000-0000-0000-0000-00000000000a";
        let map = answers("--answers", &format!(r#"{{"{id}": false}}"#), bounds).unwrap();
        assert_eq!(map[&id.parse().unwrap()], Value::Bool(false));
        assert!(answers("--answers", "[]", bounds).is_err());
        assert!(answers("--answers", r#"{"one": 1}"#, bounds).is_err());
        let twice = format!(r#"{{"{id}": 1, "{}": 2}}"#, id.to_uppercase());
        assert!(answers("--answers", &twice, bounds).is_err());
    }
}
