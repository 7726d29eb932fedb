//! Where secrets come from: a file that nobody else can read, and the environment.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use super::failure::Failure;
use super::service::KEY_VARIABLE;
use crate::engine::HostBuilder;
use crate::model::TenantId;

/// What follows is the secret's name, with `_` for `-` and in capitals; the value is the host and the secret.
const VARIABLE: &str = "HOLDPOINT_SECRET_";
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretsFile {
    #[serde(default)]
    secrets: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    tenant: Option<TenantId>,
    host: String,
    value: String,
}

/// Those of the file, and then those of the environment, which hold where both name one.
pub fn given(mut builder: HostBuilder, file: Option<&Path>) -> Result<HostBuilder, Failure> {
    if let Some(path) = file {
        for Entry { name, tenant, host, value } in read(path)?.secrets {
            builder = builder.secret(tenant.unwrap_or_default(), name, host, value);
        }
    }
    for (variable, value) in std::env::vars_os() {
        if let Some(secret) = of_variable(&variable, value) {
            let (name, host, value) = secret?;
            builder = builder.secret(TenantId::default(), name, host, value);
        }
    }
    Ok(builder)
}

/// Whether an environment variable holds what no other program should be given.
fn is_secret(variable: &std::ffi::OsStr) -> bool {
    variable.to_string_lossy().starts_with(VARIABLE) || variable == KEY_VARIABLE
}

/// A command that is given none of them: what builds a stranger's node runs the stranger's scripts.
pub fn without(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| is_secret(variable)) {
        command.env_remove(variable);
    }
    command
}

type Named = (String, String, String);

fn of_variable(variable: &OsString, value: OsString) -> Option<Result<Named, Failure>> {
    let name = variable.to_str()?.strip_prefix(VARIABLE)?;
    let value = value.into_string().ok();
    let parts = value.as_deref().and_then(|value| value.trim().split_once(' '));
    Some(match parts {
        Some((host, secret)) => {
            Ok((name.to_ascii_lowercase().replace('_', "-"), host.to_owned(), secret.trim().to_owned()))
        }
        // It is not shown: it may be the secret alone.
        None => Err(Failure::argument(format!(
            "{VARIABLE}{name} is the host that the secret is for, a space, and the secret"
        ))),
    })
}

fn read(path: &Path) -> Result<SecretsFile, Failure> {
    let shown = path.display();
    let cannot = |error: std::io::Error| Failure::argument(format!("--secrets {shown}: {error}"));
    // Looked at before it is opened, since to open a pipe waits for whoever writes it.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(Failure::argument(format!("--secrets {shown}: it is no regular file")));
    }
    let file = File::open(path).map_err(cannot)?;
    others_cannot_read(path, &file.metadata().map_err(cannot)?)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::argument(format!(
            "--secrets {shown}: it is longer than {FILE_BYTES_MAX} bytes"
        )));
    }
    toml::from_str(&text).map_err(|error| {
        // Only the line's number: the line may be a secret, and so may what the parser says of it.
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        Failure::argument(format!(
            "--secrets {shown}, about line {line}: it is no list of secrets; each is [[secrets]] with name, host \
             and value, and perhaps tenant, all of them texts"
        ))
    })
}

#[cfg(unix)]
fn others_cannot_read(path: &Path, metadata: &fs::Metadata) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Failure::argument(format!(
        "--secrets {shown}: others can read or write it (its mode is {mode:o}); chmod 600 {shown}"
    )))
}

#[cfg(not(unix))]
fn others_cannot_read(path: &Path, _: &fs::Metadata) -> Result<(), Failure> {
    // Nobody here can say who else reads it.
    let shown = path.display();
    Err(Failure::argument(format!("--secrets {shown}: only on Unix; use {VARIABLE}NAME")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_names_a_secret_its_host_and_its_value() {
        let variable = |name: &str, value: &str| of_variable(&name.into(), value.into());
        let found = variable("HOLDPOINT_SECRET_PAY_TOKEN", "pay.example:8443 not to be seen ").unwrap();
        let named = ("pay-token".to_owned(), "pay.example:8443".to_owned(), "not to be seen".to_owned());
        assert_eq!(found.ok(), Some(named));
        assert!(variable("HOLDPOINT_SECRETS", "secrets.toml").is_none());
        for (name, is) in
            [("HOLDPOINT_SECRET_PAY_TOKEN", true), ("HOLDPOINT_KEY", true), ("HOLDPOINT_DB", false)]
        {
            assert_eq!(is_secret(name.as_ref()), is, "{name}");
        }
        let refused = variable("HOLDPOINT_SECRET_PAY_TOKEN", "unseen").unwrap().unwrap_err().to_string();
        assert!(refused.contains("PAY_TOKEN") && !refused.contains("unseen"), "{refused}");
    }
}
