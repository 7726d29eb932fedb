//! Random numbers: three sources by name, one stream from the attempt's seed.

use rand_chacha::rand_core::Rng as _;
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use super::super::guest::Guest;
use super::super::stop::Stop;

impl Guest {
    fn random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        let limit = self.limits.host_call_bytes;
        let Some(len) = usize::try_from(len).ok().filter(|&len| len as u64 <= limit) else {
            let message = format!(
                "the node asks for {len} random bytes at once; {limit} are the most (host_call_bytes)"
            );
            return Err(Stop::limit("host_call_bytes", limit, message).into());
        };
        let mut bytes = vec![0; len];
        self.random.fill_bytes(&mut bytes);
        Ok(bytes)
    }
}

impl random::Host for Guest {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.next_u64())
    }
}

impl insecure::Host for Guest {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.next_u64())
    }
}

impl insecure_seed::Host for Guest {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok((self.random.next_u64(), self.random.next_u64()))
    }
}
