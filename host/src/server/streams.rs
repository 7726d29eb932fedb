//! Streams of a call's events (SSE) and waits for its end: both begin at once, say every few seconds that
//! they are still there, and can be taken up again where they broke off.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::body::encoded;
use super::caller::Allowed;
use super::events::{self, Cursor, Event, Modes};
use super::problem::Problem;
use super::quotas::Room;
use super::shapes::Interrupt;
use super::state::Reader;
use crate::model::ids::RunId;
use crate::model::{Kind, RunConfig, TenantId, ThreadId};
use crate::store::{InvocationRow, InvocationStatus};

/// Where a call can be found again, for whoever lost its connection. Of this origin.
pub fn located(response: &mut Response, row: &InvocationRow, again: &str) {
    let at = format!("/threads/{}/runs/{}", encoded(row.thread.as_str()), row.invocation);
    let value = |text: String| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("/"));
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, value(format!("{at}/{again}")));
    headers.insert(header::CONTENT_LOCATION, value(at));
}

/// What becomes of a call whose caller is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    #[default]
    Continue,
    Cancel,
}

/// Calls a run off if it is dropped before its end.
struct Leash {
    allowed: Arc<Allowed>,
    row: InvocationRow,
    is_held: bool,
}

impl Drop for Leash {
    fn drop(&mut self) {
        if !self.is_held || self.allowed.service.is_stopping() {
            return;
        }
        let (allowed, row) = (self.allowed.clone(), self.row.clone());
        tokio::spawn(async move {
            let why = "its caller is gone";
            if let Err(problem) = super::runs::call_off(&allowed, &row, why).await {
                tracing::debug!(invocation = %row.invocation, detail = problem.detail(), "not called off");
            }
        });
    }
}

fn leash(allowed: &Arc<Allowed>, row: &InvocationRow, on: OnDisconnect) -> Leash {
    Leash { allowed: allowed.clone(), row: row.clone(), is_held: on == OnDisconnect::Cancel }
}

/// A place among all streams and waits, and among the tenant's.
type Place = [OwnedSemaphorePermit; 2];

fn room(allowed: &mut Allowed) -> Result<Place, Problem> {
    let streams = allowed.service.streams.clone();
    let most = allowed.service.settings.streams_at_once;
    let full =
        |_| Problem::crowded("streams_at_once", most as u64, format!("{most} streams are open already"));
    let own = allowed.service.meter.place(&allowed.tenant, Room::Streams)?;
    let one = streams.try_acquire_owned().map_err(full)?;
    allowed.place = None;
    Ok([own, one])
}

/// A stream while it is read.
struct Reading {
    allowed: Arc<Allowed>,
    row: InvocationRow,
    modes: Modes,
    cursor: Cursor,
    ready: VecDeque<Event>,
    namespaces: BTreeMap<RunId, String>,
    said: Said,
    leash: Leash,
    _room: Place,
    _open: Open,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Metadata,
    /// The error, of a call that failed.
    Error,
    End,
}

/// Counts the streams that are open.
struct Open(Arc<Allowed>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.service.metrics.streams.dec();
    }
}

/// A call's events, from its beginning or from where its reader was.
pub fn stream(
    mut allowed: Allowed,
    row: InvocationRow,
    modes: Modes,
    headers: &HeaderMap,
    on: OnDisconnect,
) -> Result<Response, Problem> {
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => {
            let id = id.to_str().unwrap_or_default();
            Some(
                id.parse::<Cursor>()
                    .map_err(|()| Problem::invalid("Last-Event-ID is none of this stream's"))?,
            )
        }
    };
    let room = room(&mut allowed)?;
    let allowed = Arc::new(allowed);
    allowed.service.metrics.streams.inc();
    let reading = Reading {
        cursor: last.unwrap_or_default(),
        said: if last.is_some() { Said::Metadata } else { Said::Nothing },
        ready: VecDeque::new(),
        namespaces: BTreeMap::new(),
        leash: leash(&allowed, &row, on),
        _open: Open(allowed.clone()),
        _room: room,
        modes,
        row: row.clone(),
        allowed: allowed.clone(),
    };
    let events = stream::unfold(reading, |mut reading| async move {
        let event = reading.next().await?;
        Some((Ok::<_, Infallible>(event), reading))
    });
    let beat = Duration::from_millis(allowed.service.settings.heartbeat_ms);
    let keep_alive = KeepAlive::new().interval(beat).text("heartbeat");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    located(&mut response, &row, "stream");
    Ok(response)
}

impl Reading {
    /// The next event; `None` at the end. Nothing is looked for before it is asked for.
    async fn next(&mut self) -> Option<SseEvent> {
        if self.said == Said::End {
            return None;
        }
        let key = (self.allowed.tenant.clone(), self.row.thread.clone());
        let mut stopped = Box::pin(self.allowed.service.stopped());
        loop {
            // Listen before looking, or a change between the two is missed.
            let mut news = self.allowed.service.hub.listen(&key);
            if let Some(event) = self.ready.pop_front() {
                return Some(
                    SseEvent::default().event(event.name).id(event.cursor.to_string()).data(event.data),
                );
            }
            match self.look().await {
                Ok(Some(event)) => return Some(event),
                Ok(None) if !self.ready.is_empty() => continue,
                Ok(None) => {}
                Err(problem) => {
                    self.said = Said::End;
                    let data = json!({ "error": "host", "message": problem.detail() });
                    return Some(SseEvent::default().event("error").data(data.to_string()));
                }
            }
            let tick = Duration::from_millis(self.allowed.service.settings.heartbeat_ms);
            tokio::select! {
                _ = news.changed() => {}
                // In case it is another process that carries the call out.
                () = tokio::time::sleep(tick) => {}
                // Broken off, not ended: its reader takes it up again with the next start.
                () = &mut stopped => {
                    self.leash.is_held = false;
                    return None;
                }
            }
        }
    }

    /// Looks into the database: what is new is put in line, and what is no checkpoint is returned.
    async fn look(&mut self) -> Result<Option<SseEvent>, Problem> {
        let (store, tenant) = (self.allowed.store(), &self.allowed.tenant);
        let gone = || Problem::not_found("such run any more");
        let row = store.invocation(tenant, self.row.invocation).await?.ok_or_else(gone)?;
        self.row = row;
        if self.said == Said::Nothing {
            self.said = Said::Metadata;
            self.cursor = Cursor { said: self.row.created_at.0.saturating_mul(1000), ..Cursor::default() };
            let data = json!({ "run_id": self.row.invocation, "attempt": 1 });
            let id = self.cursor.to_string();
            return Ok(Some(SseEvent::default().event("metadata").id(id).data(data.to_string())));
        }
        if let Some(from) = self.row.from_seq
            && self.cursor.seq < from
        {
            self.cursor = Cursor { seq: from, events: 0, said: self.cursor.said };
        }
        let allowed = self.allowed.clone();
        let thread = self.row.thread.clone();
        let reader = Reader { allowed: &allowed, thread: &thread };
        let before = self.cursor;
        self.ready =
            events::next(&reader, &self.row, &self.modes, &mut self.cursor, &mut self.namespaces).await?;
        if !self.ready.is_empty() || self.cursor != before {
            // Perhaps there is more than a page of it, all of which comes before the end.
            if self.ready.is_empty() {
                return Box::pin(self.look()).await;
            }
            return Ok(None);
        }
        if !self.row.status.is_over() {
            return Ok(None);
        }
        if let (Some(error), Said::Metadata) = (&self.row.error, self.said) {
            self.said = Said::Error;
            let data = json!({ "error": error.kind.as_str(), "message": error.message });
            return Ok(Some(SseEvent::default().event("error").data(data.to_string())));
        }
        self.said = Said::End;
        self.leash.is_held = false;
        let data = json!({ "run_id": self.row.invocation, "status": self.row.status.as_str() });
        Ok(Some(SseEvent::default().event("end").data(data.to_string())))
    }
}

/// A call's outcome once it is over, as the protocol's `wait` and `join` answer.
pub async fn outcome(allowed: &Allowed, thread: &ThreadId, row: &InvocationRow) -> Result<Value, Problem> {
    if let (InvocationStatus::Error, Some(error)) = (row.status, &row.error) {
        return Ok(json!({ "__error__": { "error": error.kind.as_str(), "message": error.message } }));
    }
    let config = || RunConfig::thread(thread.as_str());
    let execution = match allowed.host.execution(config()).await {
        Ok(execution) => execution,
        // It was called off before it began.
        Err(error) if error.kind() == crate::model::Kind::NotFound => return Ok(json!({})),
        Err(error) => return Err(error.into()),
    };
    let mut values = allowed.host.state(config()).await?;
    if !execution.interrupts.is_empty() {
        let asked: Vec<Interrupt> = execution.interrupts.iter().map(Interrupt::of).collect();
        values["__interrupt__"] = json!(asked);
    }
    Ok(values)
}

/// How long a refusal may take until the answer begins all the same.
const BEGIN_MS: u64 = 2_000;

/// Waits for a call's end. What is refused at once is refused as such; after that the answer begins, and
/// says now and then that it is still there.
pub async fn wait(
    mut allowed: Allowed,
    row: InvocationRow,
    done: Option<tokio::sync::oneshot::Receiver<Result<crate::model::Execution, crate::engine::EngineError>>>,
    on: OnDisconnect,
) -> Result<Response, Problem> {
    let room = room(&mut allowed)?;
    let allowed = Arc::new(allowed);
    let mut leash = leash(&allowed, &row, on);
    let begin = Duration::from_millis(BEGIN_MS);
    if let Some(done) = done
        && let Ok(Ok(Err(error))) = tokio::time::timeout(begin, done).await
        // One that was called off is over, and how it ended is the answer.
        && error.kind() != Kind::Cancelled
    {
        leash.is_held = false;
        return Err(error.into());
    }
    let beat = Duration::from_millis(allowed.service.settings.heartbeat_ms);
    let ending = {
        let (allowed, row) = (allowed.clone(), row.clone());
        async move {
            let row = allowed.service.ended(&allowed.tenant, row).await?;
            outcome(&allowed, &row.thread.clone(), &row).await
        }
    };
    let mut ending = Box::pin(ending);
    // Most are over by now: those are answered in one piece.
    if let Ok(ended) = tokio::time::timeout(beat.min(Duration::from_millis(200)), &mut ending).await {
        leash.is_held = false;
        let mut response = axum::Json(ended?).into_response();
        located(&mut response, &row, "join");
        return Ok(response);
    }
    let state = Some((ending, leash, room));
    let pieces = stream::unfold(state, move |state| async move {
        let (mut ending, mut leash, room) = state?;
        match tokio::time::timeout(beat, &mut ending).await {
            // White space before a value means nothing.
            Err(_) => Some((Ok("\n".to_owned()), Some((ending, leash, room)))),
            Ok(Ok(value)) => {
                leash.is_held = false;
                Some((Ok(value.to_string()), None))
            }
            // Broken off in the middle, so that the caller asks again where Location says.
            Ok(Err(problem)) => {
                leash.is_held = false;
                Some((Err(std::io::Error::other(problem.detail().to_owned())), None))
            }
        }
    });
    let mut response = (StatusCode::OK, HttpBody::from_stream(pieces)).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    located(&mut response, &row, "join");
    Ok(response)
}

/// Whose call this is, if it is one of this thread.
pub async fn call_of(allowed: &Allowed, thread: &ThreadId, id: &str) -> Result<InvocationRow, Problem> {
    let tenant: &TenantId = &allowed.tenant;
    let missing = || Problem::not_found(format_args!("run {:?} on thread {thread}", super::body::clip(id)));
    let id = id.parse().map_err(|_| missing())?;
    let row = allowed.store().invocation(tenant, id).await?;
    row.filter(|row| row.thread == *thread).ok_or_else(missing)
}
