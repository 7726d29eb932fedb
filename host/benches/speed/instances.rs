//! What a fresh instance costs, by where its memory comes from and how it comes by its data. Pooling is
//! measured where it is compiled in: `cargo bench -p holdpoint --bench speed --features pooling -- instances`,
//! which builds wasmtime once more.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::amount::Amount;
use crate::bare_call::{Allocation, BareCall, Image};
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{machine, node};

const CROWDED: Duration = Duration::from_millis(100);
/// At once, while their memory is looked at.
const LIVE: usize = 64;

struct Setting {
    name: &'static str,
    call: BareCall,
    calls: Samples,
    /// The same, while all cores do it.
    crowded: Samples,
    live_bytes: u64,
}

pub async fn measure(amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let bytes = node::bytes(&node::component())?;
    let settings = [
        ("on demand, copy-on-write", Allocation::OnDemand, Image::CopyOnWrite),
        ("on demand, copied", Allocation::OnDemand, Image::Copied),
        #[cfg(feature = "pooling")]
        ("pooling, copy-on-write", Allocation::Pooling { keep_resident_bytes: 0 }, Image::CopyOnWrite),
        #[cfg(feature = "pooling")]
        (
            "pooling, copy-on-write, 64 KB kept resident",
            Allocation::Pooling { keep_resident_bytes: 64 << 10 },
            Image::CopyOnWrite,
        ),
        #[cfg(feature = "pooling")]
        (
            "pooling, copy-on-write, 1 MB kept resident",
            Allocation::Pooling { keep_resident_bytes: 1 << 20 },
            Image::CopyOnWrite,
        ),
        #[cfg(feature = "pooling")]
        ("pooling, copied", Allocation::Pooling { keep_resident_bytes: 0 }, Image::Copied),
    ];
    let mut measured = Vec::new();
    for (name, allocation, image) in settings {
        let call = BareCall::new(&bytes, allocation, image).map_err(anyhow::Error::msg)?;
        let live_bytes = live_bytes(&call).await?;
        measured.push(Setting {
            name,
            call,
            calls: Samples::default(),
            crowded: Samples::default(),
            live_bytes,
        });
    }
    for i in amount.turns(amount.cycles) {
        // Each is sometimes the first after whatever else went on.
        for at in 0..measured.len() {
            let at = (at + i) % measured.len();
            let Setting { call, calls, .. } = &mut measured[at];
            calls.time(call.call()).await?;
        }
    }
    for _ in amount.turns(amount.rounds) {
        for setting in &mut measured {
            crowded(setting).await?;
        }
    }

    report.title("A fresh instance, called up to its question, by wasmtime alone; raw is the first");
    let first = measured[0].calls.p50();
    for setting in &mut measured {
        let row = Row::times(format!("instance: {}", setting.name), &mut setting.calls).raw(first);
        report.add(row.on_page());
    }
    let first = measured[0].crowded.p50();
    for setting in &mut measured {
        let name = format!("instance, on all cores at once: {}", setting.name);
        report.add(Row::times(name, &mut setting.crowded).raw(first).on_page());
    }
    for setting in &measured {
        let name = format!("instance: resident, {}", setting.name);
        report.add(Row::value(name, setting.live_bytes as f64, "bytes"));
    }
    Ok(())
}

/// Instances of one process share what maps its memory.
async fn crowded(setting: &mut Setting) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..machine::cores() {
        let call = setting.call.clone();
        workers.spawn(async move {
            let mut calls = Samples::default();
            while began.elapsed() < CROWDED {
                calls.time(call.call()).await?;
            }
            Ok(calls)
        });
    }
    for calls in workers.join_all().await {
        let calls: anyhow::Result<Samples> = calls;
        setting.crowded.extend(calls?);
    }
    Ok(())
}

/// What each of some that are there at once adds to this process; zero where the system does not say.
async fn live_bytes(call: &BareCall) -> anyhow::Result<u64> {
    // What the first ones touch stays.
    for _ in 0..LIVE {
        call.call().await?;
    }
    let before = machine::resident_bytes(None).unwrap_or_default();
    let mut live = Vec::new();
    for _ in 0..LIVE {
        live.push(call.live().await?);
    }
    let after = machine::resident_bytes(None).unwrap_or_default();
    Ok(after.saturating_sub(before) / LIVE as u64)
}
