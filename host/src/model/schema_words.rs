//! Why an answer is none, in words: of alternatives each with its own reason, as far as these are few.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

const WAYS_MAX: usize = 4;
const REASON_CHARS_MAX: usize = 160;
const WORDS_CHARS_MAX: usize = 400;

pub(super) fn words(schema: &Value, error: &ValidationError<'_>) -> String {
    let (how, ways) = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            ("fits none of", context)
        }
        ValidationErrorKind::OneOfMultipleValid { context } => ("fits more than one of", context),
        _ => return clip(&error.to_string(), WORDS_CHARS_MAX),
    };
    let at = error.schema_path().as_str();
    let mut said = format!("{} {how} {} ways to answer", clip(&error.instance().to_string(), 60), ways.len());
    for (i, reasons) in ways.iter().take(WAYS_MAX).enumerate() {
        let title = schema.pointer(&format!("{at}/{i}/title")).and_then(Value::as_str);
        let named = title.map(|title| format!(" ({})", clip(title, 40))).unwrap_or_default();
        said += &format!("; {}{named}: {}", i + 1, reasons.first().map_or_else(|| "it fits".into(), reason));
    }
    if ways.len() > WAYS_MAX {
        said += &format!("; and {} more", ways.len() - WAYS_MAX);
    }
    said
}

fn reason(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { String::new() } else { format!("at {place}: ") };
    clip(&format!("{place}{error}"), REASON_CHARS_MAX)
}

fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
