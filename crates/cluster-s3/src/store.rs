//! The store: requests to the service, and what their answers mean.

use core::fmt;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use ropewalk_cluster::checkpoint::{CheckpointStore, OBJECT_BYTES_MAX, ObjectError, check_name};
use tokio::runtime::{Builder, Runtime};

use crate::place::S3Place;

/// Time within which a failed request is repeated. The upkeep of checkpoints repeats what fails, too.
const RETRY_TIME: Duration = Duration::from_secs(20);

/// Repetitions of a failed request.
const RETRIES_MAX: usize = 4;

/// Kind of the objects by which a service is checked.
const CHECKS: &str = "checks";

/// A checkpoint store in a bucket of S3 or of a compatible service. A call blocks for at most about a minute: 30 s for a request,
/// and 20 s within which it is repeated.
pub struct S3Store {
    place: S3Place,
    service: AmazonS3,
    /// Runs the connections. `None` only while the store is dropped.
    runtime: Option<Runtime>,
}

impl S3Store {
    /// Opens the store at `place`, and checks that the service is reached, that this user may read, write and delete there, and that
    /// the service does not replace an object if asked not to. Endpoint, region and credentials are those of the environment's
    /// variables that begin with `AWS_`, else those of the role of the machine or container.
    ///
    /// # Errors
    /// A variable has no valid value, or the check failed.
    pub fn open(place: S3Place) -> Result<Self, ObjectError> {
        let name = format!("s3://{}", place.bucket);
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIME,
        };
        let service = AmazonS3Builder::from_env().with_bucket_name(&place.bucket).with_retry(retry).build();
        let service = service.map_err(|error| failed("open", &name, &error))?;
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("rope-s3").enable_all().build();
        let runtime = runtime.map_err(|error| failed("open", &name, &error))?;
        let store = Self { place, service, runtime: Some(runtime) };
        store.check_condition()?;
        Ok(store)
    }

    /// A service that ignores the condition would let two nodes replace each other's objects.
    fn check_condition(&self) -> Result<(), ObjectError> {
        let number = getrandom::u64().map_err(|error| failed("create", CHECKS, &error))?;
        let name = format!("{CHECKS}/{number:016x}");
        let created =
            self.create(&name, b"first").and_then(|first| Ok((first, self.create(&name, b"second")?)));
        let deleted = self.delete(&name);
        if created? != (true, false) {
            let cause = "the service replaces an object although If-None-Match: * forbids it";
            return Err(ObjectError { call: "create", name, cause: cause.to_owned() });
        }
        deleted
    }

    /// The key of an object, after a check of its name.
    fn key(&self, call: &'static str, name: &str) -> Result<Path, ObjectError> {
        check_name(call, name)?;
        Ok(Path::from(self.place.key(name)))
    }

    /// The answer to a request, which runs in the store's own runtime: the calling thread may be one of another runtime.
    fn answer<T, F>(
        &self,
        (call, name): (&'static str, &str),
        request: impl FnOnce(AmazonS3) -> F,
    ) -> Result<Result<T, Error>, ObjectError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let request = request(self.service.clone());
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move { sender.send(request.await) });
        }
        receiver.recv().map_err(|error| failed(call, name, &error))
    }
}

fn failed(call: &'static str, name: &str, error: &dyn std::error::Error) -> ObjectError {
    let mut cause = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !cause.contains(&text) {
            cause = format!("{cause}: {text}");
        }
        source = error.source();
    }
    ObjectError { call, name: name.to_owned(), cause }
}

impl CheckpointStore for S3Store {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let (key, bytes) = (self.key("create", name)?, PutPayload::from(bytes.to_vec()));
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = |service: AmazonS3| async move { service.put_opts(&key, bytes, options).await };
        match self.answer(("create", name), put)? {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(failed("create", name, &error)),
        }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        let key = self.key("read", name)?;
        let get = |service: AmazonS3| async move {
            let found = service.get(&key).await?;
            let fits = found.meta.size <= OBJECT_BYTES_MAX;
            Ok(if fits { Some(found.bytes().await?) } else { None })
        };
        match self.answer(("read", name), get)? {
            Ok(Some(bytes)) => Ok(Some(bytes.into())),
            Ok(None) => {
                let cause = format!("it has more than {OBJECT_BYTES_MAX} bytes");
                Err(ObjectError { call: "read", name: name.to_owned(), cause })
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("read", name, &error)),
        }
    }

    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError> {
        let prefix = Path::from(self.place.key(kind));
        let list = |service: AmazonS3| async move {
            service.list(Some(&prefix)).try_collect::<Vec<ObjectMeta>>().await
        };
        let objects = self.answer(("list", kind), list)?.map_err(|error| failed("list", kind, &error))?;
        let names = objects.iter().filter_map(|object| object.location.filename());
        Ok(names.map(|name| format!("{kind}/{name}")).collect())
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        let key = self.key("delete", name)?;
        let delete = |service: AmazonS3| async move { service.delete(&key).await };
        match self.answer(("delete", name), delete)? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete", name, &error)),
        }
    }
}

impl Drop for S3Store {
    fn drop(&mut self) {
        // A runtime that is dropped within another one panics.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Store(s3://{}/{})", self.place.bucket, self.place.prefix)
    }
}
