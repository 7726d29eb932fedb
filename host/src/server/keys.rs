//! Keys: how one looks, is made and is checked. `hp_` and two halves: the public one finds the row, the
//! secret one is compared by its hash, which takes the same time wherever it differs.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::model::{TenantId, Timestamp};
use crate::store::{KeyRow, OnlyFor, Scope, ServiceWrite, Store, StoreError};

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Whose it is; recorded with what is done with it.
    pub name: String,
    pub scopes: Vec<Scope>,
    pub only_for: OnlyFor,
    pub expires_at: Option<Timestamp>,
}

/// Makes a key. Its text is returned here, and can never be had again.
pub async fn create(
    store: &Store,
    tenant: &TenantId,
    new: NewKey,
    now: Timestamp,
) -> Result<(String, KeyRow), StoreError> {
    let (mut key, mut secret) = ([0; 16], [0; 32]);
    for half in [&mut key[..], &mut secret[..]] {
        // Without an entropy source there is no safe way to go on, on any system that this runs on.
        getrandom::fill(half).expect("the system has random numbers");
    }
    let row = KeyRow {
        key: Uuid::from_bytes(key),
        hash: Sha256::digest(secret).into(),
        name: new.name,
        scopes: new.scopes,
        only_for: new.only_for,
        created_at: now,
        expires_at: new.expires_at,
        revoked_at: None,
    };
    let written = store.serve(tenant, vec![ServiceWrite::Key(row.clone())]).await?;
    debug_assert!(written.is_ok(), "no two keys are alike");
    Ok((format!("hp_{}_{}", hex::encode(key), hex::encode(secret)), row))
}

/// Takes a key back. `false`: there is none of this id, or it was taken back before.
pub async fn revoke(store: &Store, tenant: &TenantId, key: Uuid, now: Timestamp) -> Result<bool, StoreError> {
    Ok(store.serve(tenant, vec![ServiceWrite::RevokeKey { key, at: now }]).await?.is_ok())
}

/// Whose key this is, if it is one that counts now.
pub async fn check(
    store: &Store,
    text: &str,
    now: Timestamp,
) -> Result<Option<(TenantId, KeyRow)>, StoreError> {
    let Some((key, secret)) = halves(text) else {
        return Ok(None);
    };
    let found = store.key(key).await?;
    let hash: [u8; 32] = Sha256::digest(secret).into();
    // Compared in any case: whether there is a key of this id is not told by how long this takes.
    let known = found.as_ref().map_or([0; 32], |(_, row)| row.hash);
    let is_same = bool::from(hash.ct_eq(&known));
    Ok(found.filter(|(_, row)| is_same && counts(row, now)))
}

fn counts(row: &KeyRow, now: Timestamp) -> bool {
    row.revoked_at.is_none() && row.expires_at.is_none_or(|at| now < at)
}

fn halves(text: &str) -> Option<(Uuid, [u8; 32])> {
    let (key, secret) = text.strip_prefix("hp_")?.split_once('_')?;
    let (mut id, mut bytes) = ([0; 16], [0; 32]);
    hex::decode_to_slice(key, &mut id).ok()?;
    hex::decode_to_slice(secret, &mut bytes).ok()?;
    Some((Uuid::from_bytes(id), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_counts_until_it_expires_or_is_taken_back_and_only_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("k.db")).await.unwrap();
        let tenant = TenantId::parse("acme").unwrap();
        let new = NewKey {
            name: "maria".into(),
            scopes: vec![Scope::Answer],
            only_for: OnlyFor::default(),
            expires_at: Some(Timestamp(100)),
        };
        let (text, row) = create(&store, &tenant, new, Timestamp(1)).await.unwrap();
        let check = async |text: &str, at| check(&store, text, Timestamp(at)).await.unwrap();
        assert_eq!(check(&text, 99).await, Some((tenant.clone(), row.clone())));
        assert_eq!(check(&text, 100).await, None);
        let last = text.chars().last().unwrap();
        let other = format!("{}{}", &text[..text.len() - 1], if last == '0' { '1' } else { '0' });
        for wrong in
            [other.as_str(), "", "hp_", "hp_00_00", &text[..text.len() - 1], &text.replace("hp_", "")]
        {
            assert_eq!(check(wrong, 1).await, None, "{wrong}");
        }
        // Nowhere in the file does the secret half stand.
        assert!(revoke(&store, &tenant, row.key, Timestamp(50)).await.unwrap());
        assert!(!revoke(&store, &tenant, row.key, Timestamp(50)).await.unwrap());
        assert_eq!(check(&text, 60).await, None);
        store.close().await;
        let file = std::fs::read(dir.path().join("k.db")).unwrap();
        let secret = hex::decode(text.rsplit('_').next().unwrap()).unwrap();
        assert!(!file.windows(32).any(|bytes| bytes == secret));
    }
}
