//! `holdpoint key`: who may call the service.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Shell;
use super::document::{Exit, Said};
use super::failure::Failure;
use super::{prose, store};
use crate::model::{TenantId, Timestamp};
use crate::server::keys::{self, NewKey};
use crate::store::{KeyRow, OnlyFor, Scope};

const CREATE_ABOUT: &str = "\
Make a key for a tenant; the tenant is made with it. The key is printed once and kept as its hash only.

`admin` is for the operator: tenants, keys, quotas, figures. `deploy` is for components and graphs, `run` for
threads and runs, answers among them, `answer` for answers alone; that one can be narrowed to graphs, nodes or agents.
The name is recorded with every answer that is given with the key.

    holdpoint key create --tenant acme --name ci --scope deploy --scope run
    holdpoint key create --tenant acme --name maria --scope answer --only-node approve --expires 90d";

const LIST_ABOUT: &str = "\
List a tenant's keys, without their secret halves.

    holdpoint key list --tenant acme";

const REVOKE_ABOUT: &str = "\
Take a key back: from now on it counts no more. A service that runs sees it at once.

    holdpoint key revoke --tenant acme 6f1c…";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a key
    #[command(long_about = CREATE_ABOUT)]
    Create(CreateArgs),
    /// List a tenant's keys
    #[command(long_about = LIST_ABOUT)]
    List(ListArgs),
    /// Take a key back
    #[command(long_about = REVOKE_ABOUT)]
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Whose threads, graphs and components the key is for
    #[arg(long, value_name = "TENANT", default_value_t = TenantId::default())]
    tenant: TenantId,

    /// Whose key it is; recorded with what is done with it
    #[arg(long, value_name = "WHO")]
    name: String,

    /// What it is for; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<Word>,

    /// Of an `answer` key: only questions of runs of this graph; may be repeated
    #[arg(long = "only-graph", value_name = "GRAPH")]
    graphs: Vec<String>,

    /// Only questions of this node; may be repeated
    #[arg(long = "only-node", value_name = "NODE")]
    nodes: Vec<String>,

    /// Only questions of this sub-agent; may be repeated
    #[arg(long = "only-agent", value_name = "AGENT")]
    agents: Vec<String>,

    /// When it ends to count, from now, such as 12h or 90d
    #[arg(long, value_name = "AFTER", value_parser = humantime::parse_duration)]
    expires: Option<std::time::Duration>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Word {
    Admin,
    Deploy,
    Run,
    Answer,
}

impl From<Word> for Scope {
    fn from(word: Word) -> Self {
        match word {
            Word::Admin => Self::Admin,
            Word::Deploy => Self::Deploy,
            Word::Run => Self::Run,
            Word::Answer => Self::Answer,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Whose keys
    #[arg(long, value_name = "TENANT", default_value_t = TenantId::default())]
    tenant: TenantId,
}

#[derive(Debug, clap::Args)]
pub struct RevokeArgs {
    /// Whose key
    #[arg(long, value_name = "TENANT", default_value_t = TenantId::default())]
    tenant: TenantId,

    /// The key's id, as `key list` shows it
    #[arg(value_name = "KEY")]
    key: Uuid,
}

pub async fn run(command: Command, shell: &Shell) -> Result<Said, Failure> {
    let host = shell.host().await?;
    let now = host.clock().now();
    let said = match command {
        Command::Create(args) => create(args, store(&host)?, now).await,
        Command::List(args) => list(&args.tenant, store(&host)?, now).await,
        Command::Revoke(args) => revoke(&args, store(&host)?, now).await,
    };
    host.close().await;
    said
}

async fn create(args: CreateArgs, store: &crate::store::Store, now: Timestamp) -> Result<Said, Failure> {
    if !crate::model::ids::is_line(&args.name) {
        return Err(Failure::argument("--name has 1 to 255 bytes without control characters"));
    }
    let expires_at =
        args.expires.map(|after| now.plus_ms(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
    let new = NewKey {
        name: args.name,
        scopes: args.scopes.into_iter().map(Scope::from).collect(),
        only_for: OnlyFor { graphs: args.graphs, nodes: args.nodes, agents: args.agents },
        expires_at,
    };
    let (key, row) = keys::create(store, &args.tenant, new, now).await?;
    let mut document = document(&row);
    document["key"] = json!(key);
    document["tenant"] = json!(args.tenant);
    let text = format!("{key}\n\nIt is shown here and never again. Its id is {}.\n", row.key);
    Ok(Said::new(Exit::Completed, &document, text))
}

async fn list(tenant: &TenantId, store: &crate::store::Store, now: Timestamp) -> Result<Said, Failure> {
    let keys = store.keys(tenant).await?;
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|row| {
            let name = super::screen::harmless(&row.name).into_owned();
            vec![row.key.to_string(), name, scopes(row).join(" "), only_for(&row.only_for), counts(row, now)]
        })
        .collect();
    let text = match rows.is_empty() {
        true => format!("tenant {tenant} has no keys\n"),
        false => prose::table(&["KEY", "NAME", "FOR", "ONLY", "COUNTS"], &rows),
    };
    let keys: Vec<Value> = keys.iter().map(document).collect();
    Ok(Said::new(Exit::Completed, &json!({ "tenant": tenant, "keys": keys }), text))
}

async fn revoke(args: &RevokeArgs, store: &crate::store::Store, now: Timestamp) -> Result<Said, Failure> {
    if !keys::revoke(store, &args.tenant, args.key, now).await? {
        let what = format!("tenant {} has no key {} that counts", args.tenant, args.key);
        return Err(Failure::NotThere(what));
    }
    let document = json!({ "tenant": args.tenant, "key_id": args.key, "revoked_at": now });
    Ok(Said::new(Exit::Completed, &document, format!("key {} counts no more\n", args.key)))
}

fn scopes(row: &KeyRow) -> Vec<String> {
    row.scopes.iter().map(|scope| format!("{scope:?}").to_lowercase()).collect()
}

fn only_for(only: &OnlyFor) -> String {
    let kinds = [("graph", &only.graphs), ("node", &only.nodes), ("agent", &only.agents)];
    let named = kinds.iter().flat_map(|(kind, names)| names.iter().map(move |name| format!("{kind} {name}")));
    super::screen::harmless(&named.collect::<Vec<_>>().join(", ")).into_owned()
}

fn counts(row: &KeyRow, now: Timestamp) -> String {
    match (row.revoked_at, row.expires_at) {
        (Some(at), _) => format!("no: taken back {at}"),
        (None, Some(at)) if at <= now => format!("no: expired {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => "yes".to_owned(),
    }
}

fn document(row: &KeyRow) -> Value {
    json!({
        "key_id": row.key,
        "name": row.name,
        "scopes": scopes(row),
        "only_for": row.only_for,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    })
}
