//! What the numbers were taken on. Linux says it in files; elsewhere less is said.

use std::fs::read_to_string;
use std::path::Path;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine, in a line.
pub fn line(dir: &Path) -> String {
    let processor = read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(": ")?.1.to_owned())
    });
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "machine: {} cores ({}), {} {}; database on {}; {}",
        cores(),
        processor.as_deref().unwrap_or(std::env::consts::ARCH),
        std::env::consts::OS,
        kernel.trim(),
        disk(dir).unwrap_or_else(|| "a disk unknown".into()),
        load(),
    )
}

pub fn load() -> String {
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", load.split_whitespace().next().unwrap_or("unknown"))
}

/// Of the file system that holds `dir`: the mount with the longest path that leads there.
fn disk(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?, words.next()?))
        })
        .filter(|(_, at, _)| dir.starts_with(at))
        .max_by_key(|(_, at, _)| at.len())?;
    Some(format!("{} ({})", mount.2, mount.0))
}

/// Bytes that this process has handed to the kernel to write, whether or not they have reached a disk.
pub fn written_bytes() -> Option<u64> {
    let io = read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// What this process has used of the processors, in user and kernel.
pub fn cpu_us() -> Option<u64> {
    // In ticks of a hundredth of a second, on every Linux that there is.
    const TICK_US: u64 = 10_000;
    let stat = read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, which may have spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks * TICK_US)
}

/// What of a process's memory is its own and in RAM; of this one, or of another.
pub fn resident_bytes(process: Option<u32>) -> Option<u64> {
    let process = process.map_or("self".to_owned(), |id| id.to_string());
    let status = read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kb: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kb * 1_024)
}
