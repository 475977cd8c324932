//! Documents on a disk that fails, in short; `sim --documents --seeds N` does any number.

use ropewalk_sim::run_documents;

use crate::find_nothing;

/// Among these are an update that leaves some of the documents it matches unchanged, while another commit
/// changes those: it writes only the others, so no change is lost (seeds 610, 865, 5962).
#[test]
fn some_seeds_find_nothing() {
    find_nothing(
        (1..=20).chain([109, 486, 610, 865, 867, 885, 1091, 1170, 1207, 1439, 5013, 5837, 5962, 5972]),
        |seed| run_documents(seed, 6),
    );
}
