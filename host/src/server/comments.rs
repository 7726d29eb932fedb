//! A small service to try effects on: it keeps each comment that is posted, once an idempotency key, and
//! counts what reached it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const COMMENTS_MAX: usize = 1_000;

/// What was posted so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Comments {
    posted: Arc<Mutex<Posted>>,
}

/// One comment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comment {
    pub id: usize,
    pub idempotency_key: String,
    pub body: Value,
    /// How often it was sent.
    pub requests: u64,
}

#[derive(Debug, Default)]
struct Posted {
    requests: u64,
    comments: Vec<Comment>,
}

impl Comments {
    /// Serves until `stop`. The caller owns the socket.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let app = Router::new().route("/comments", get(list).post(post)).with_state(self);
        axum::serve(listener, app).with_graceful_shutdown(stop).await
    }

    /// All requests that posted something, whatever came of them.
    pub fn requests(&self) -> u64 {
        self.posted().requests
    }

    pub fn all(&self) -> Vec<Comment> {
        self.posted().comments.clone()
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

async fn list(State(comments): State<Comments>) -> Json<Value> {
    let posted = comments.posted();
    Json(json!({ "requests": posted.requests, "comments": posted.comments }))
}

async fn post(
    State(comments): State<Comments>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (status, answer) = comments.posted().post(key, body);
    (status, Json(answer))
}

impl Posted {
    fn post(&mut self, key: Option<&str>, body: Value) -> (StatusCode, Value) {
        self.requests += 1;
        let Some(key) = key else {
            return (StatusCode::BAD_REQUEST, json!({ "error": "no Idempotency-Key" }));
        };
        if let Some(known) = self.comments.iter_mut().find(|comment| comment.idempotency_key == key) {
            known.requests += 1;
            return match known.body == body {
                true => (StatusCode::OK, json!({ "comment": known.id })),
                false => (
                    StatusCode::UNPROCESSABLE_ENTITY,
                    json!({ "error": "another comment has this Idempotency-Key" }),
                ),
            };
        }
        if self.comments.len() == COMMENTS_MAX {
            return (StatusCode::INSUFFICIENT_STORAGE, json!({ "error": "no room for another comment" }));
        }
        let id = self.comments.len() + 1;
        self.comments.push(Comment { id, idempotency_key: key.to_owned(), body, requests: 1 });
        (StatusCode::CREATED, json!({ "comment": id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_comment_however_often_it_is_sent() {
        let mut posted = Posted::default();
        let mut check = |key, body: Value, status, answer: Value| {
            assert_eq!(posted.post(key, body), (status, answer));
        };
        check(Some("k"), json!("a"), StatusCode::CREATED, json!({ "comment": 1 }));
        check(Some("k"), json!("a"), StatusCode::OK, json!({ "comment": 1 }));
        check(Some("l"), json!("a"), StatusCode::CREATED, json!({ "comment": 2 }));
        let other = json!({ "error": "another comment has this Idempotency-Key" });
        check(Some("k"), json!("b"), StatusCode::UNPROCESSABLE_ENTITY, other);
        check(None, json!("a"), StatusCode::BAD_REQUEST, json!({ "error": "no Idempotency-Key" }));
        assert_eq!((posted.requests, posted.comments.len()), (5, 2));
        assert_eq!(posted.comments[0].requests, 3);
    }
}
