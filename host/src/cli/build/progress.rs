//! How far a build is: a spinner for whoever watches, lines for everybody else.

use std::io::{self, IsTerminal};

use super::super::screen::Screen;

pub struct Progress {
    screen: Screen,
    watched: bool,
}

impl Progress {
    pub fn new(screen: &Screen) -> Self {
        Self { screen: screen.clone(), watched: io::stderr().is_terminal() }
    }

    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// What is done from here on.
    pub fn step(&self, what: String) {
        if self.watched {
            self.screen.busy(what);
        } else {
            self.screen.line(&what);
        }
    }

    /// What should be read even when it is over.
    pub fn line(&self, line: &str) {
        self.screen.line(line);
    }

    pub fn rest(&self) {
        self.screen.rest();
    }
}
