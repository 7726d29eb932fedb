//! Lines for the operator's log: `log::info!("{count} labels")`, and so for `trace`, `debug`, `warn`,
//! `error`.
//!
//! A line is written once: not again while a resumed node goes over what it did before. Long lines and
//! talkative nodes are cut off, and the log says so.

use crate::{bindings::holdpoint::node::log as wit, host};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// Write one line; the macros `log::trace!` to `log::error!` are shorter.
pub fn write(level: Level, message: &str) {
    let level = match level {
        Level::Trace => wit::Level::Trace,
        Level::Debug => wit::Level::Debug,
        Level::Info => wit::Level::Info,
        Level::Warn => wit::Level::Warn,
        Level::Error => wit::Level::Error,
    };
    host::write(level, message);
}

macro_rules! levels {
    ($d:tt $($level:ident $shown:ident $hidden:ident)*) => {$(
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $hidden {
            ($d($d words:tt)*) => {
                $crate::log::write($crate::log::Level::$level, &::std::format!($d($d words)*))
            };
        }
        #[doc = concat!("Write one line at [`Level::", stringify!($level), "`]; arguments as for `format!`.")]
        #[doc(inline)]
        pub use $hidden as $shown;
    )*};
}

levels! { $
    Trace trace __log_trace
    Debug debug __log_debug
    Info info __log_info
    Warn warn __log_warn
    Error error __log_error
}
