//! What vouches for compiled code on its way back to the host, from disk or from a compile process: a keyed
//! hash over the code, the engine and the component that it was made from.

use sha2::{Digest as _, Sha256};

use crate::model::ids::Digest;

pub(super) const TAG_BYTES: usize = 32;

/// Makes and checks tags under one key, for one engine.
pub(super) struct Seal {
    key: [u8; 32],
    /// Of the engine: what another version or configuration of it compiled does not pass.
    compatibility: [u8; 32],
}

impl Seal {
    pub fn new(key: [u8; 32], compatibility: [u8; 32]) -> Self {
        Self { key, compatibility }
    }

    pub fn tag(&self, digest: Digest, code: &[u8]) -> [u8; TAG_BYTES] {
        // All but the last have a fixed length, so no two artifacts are the same message.
        hmac(&self.key, &[b"holdpoint artifact 1", &self.compatibility, &digest.0, code])
    }

    /// The code behind the tag, if it is whole and what was sealed for this component.
    pub fn open<'a>(&self, digest: Digest, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (tag, code) = sealed.split_first_chunk::<TAG_BYTES>()?;
        is_same(tag, &self.tag(digest, code)).then_some(code)
    }

    pub fn compatibility(&self) -> &[u8; 32] {
        &self.compatibility
    }
}

/// HMAC-SHA256 (RFC 2104) of the parts, one after the other.
fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; TAG_BYTES] {
    let mut inner = Sha256::new();
    inner.update(padded(key, 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(padded(key, 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

fn padded(key: &[u8; 32], pad: u8) -> [u8; 64] {
    let mut block = [pad; 64];
    for (byte, key) in block.iter_mut().zip(key) {
        *byte ^= key;
    }
    block
}

/// In a time that does not tell where they differ.
fn is_same(a: &[u8; TAG_BYTES], b: &[u8; TAG_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyed_hash_is_hmac_sha256() {
        // RFC 4231, test case 1. HMAC itself fills a shorter key up with zeroes.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        assert_eq!(
            hex::encode(hmac(&key, &[b"Hi ", b"There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
    }

    #[test]
    fn a_seal_is_for_one_key_one_engine_and_one_component() {
        let (digest, code) = (Digest([7; 32]), b"code");
        let seal = Seal::new([1; 32], [2; 32]);
        let sealed = [&seal.tag(digest, code)[..], code].concat();
        assert_eq!(seal.open(digest, &sealed), Some(&code[..]));
        assert_eq!(seal.open(Digest([8; 32]), &sealed), None);
        assert_eq!(Seal::new([3; 32], [2; 32]).open(digest, &sealed), None);
        assert_eq!(Seal::new([1; 32], [3; 32]).open(digest, &sealed), None);
        for length in 0..sealed.len() {
            assert_eq!(seal.open(digest, &sealed[..length]), None);
        }
    }
}
