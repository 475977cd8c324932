//! The samples of one commit, decoded for readers of the change feed.

use std::collections::HashMap;

use ropewalk_base::DecodeError;
use ropewalk_labels::Labels;

use crate::chunk::ChunkHead;
use crate::model::SeriesModel;
use crate::storage::section::{Body, Group, NewSeries, Section, Target, each_group};

/// Samples of one series in one commit.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedSamples {
    /// Name of the series store.
    pub store: String,
    /// The series; empty if it was deleted since.
    pub labels: Labels,
    /// Milliseconds since 1970 and value of the first samples. Histograms are only counted.
    pub samples: Vec<(i64, f64)>,
    /// Number of all samples.
    pub count: u64,
}

impl SeriesModel {
    /// Adds the samples of a section to `all`, which gets at most `series_max` entries with at most
    /// `samples_max` samples each, and no more entries once their labels exceed `bytes_max`. Returns true if
    /// series were left out.
    ///
    /// # Errors
    /// A section that does not decode; `all` may then have samples of it.
    pub fn committed_samples(
        &self,
        section: &[u8],
        all: &mut Vec<CommittedSamples>,
        (series_max, samples_max, bytes_max): (usize, usize, usize),
    ) -> Result<bool, DecodeError> {
        let Section { store, creates, body } = Section::decode(section)?;
        let Body::Samples { new, groups, .. } = body else { return Ok(false) };
        let state = self.by_id(store);
        let name = creates.map(str::to_owned).or_else(|| self.store_name(store)).unwrap_or_default();
        let labels_of = |target: Target| {
            let id = match target {
                Target::Known(id) => Some(id),
                Target::New(ordinal) => match new.get(ordinal as usize) {
                    Some(NewSeries::Created(bytes)) => return Labels::from_bytes(bytes).unwrap_or_default(),
                    Some(NewSeries::Known(id)) => Some(*id),
                    None => None,
                },
            };
            let known = state.as_ref().zip(id).and_then(|(state, id)| {
                let index = state.index.read();
                index.labels(id).map(|labels| labels.to_owned())
            });
            known.unwrap_or_default()
        };
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut is_truncated = false;
        let mut bytes: usize = all.iter().map(|series| series.labels.bytes()).sum();
        each_group(groups, |target, group, floats| {
            let key = match target {
                Target::Known(id) => u64::from(id),
                Target::New(ordinal) => (1 << 32) | u64::from(ordinal),
            };
            let place = match places.get(&key) {
                Some(place) => *place,
                None if all.len() >= series_max || bytes > bytes_max => {
                    is_truncated = true;
                    return Ok(());
                }
                None => {
                    let (store, labels) = (name.clone(), labels_of(target));
                    bytes += labels.bytes();
                    all.push(CommittedSamples { store, labels, samples: Vec::new(), count: 0 });
                    places.insert(key, all.len() - 1);
                    all.len() - 1
                }
            };
            let Some(series) = all.get_mut(place) else { return Ok(()) };
            let room = samples_max.saturating_sub(series.samples.len());
            match group {
                Group::Floats => {
                    series.count += floats.len() as u64;
                    let shown = floats.iter().take(room).map(|(time, bits)| (*time, f64::from_bits(*bits)));
                    series.samples.extend(shown);
                }
                Group::Chunk(bytes) => {
                    let (mut times, mut bits) = (Vec::new(), Vec::new());
                    ChunkHead::decode(bytes, 0)?.samples(&mut times, &mut bits)?;
                    series.count += times.len() as u64;
                    let shown = times.into_iter().zip(bits).take(room);
                    series.samples.extend(shown.map(|(time, bits)| (time, f64::from_bits(bits))));
                }
                Group::Rich(..) => series.count += 1,
                Group::Exemplar(..) => {}
            }
            Ok(())
        })?;
        Ok(is_truncated)
    }
}
