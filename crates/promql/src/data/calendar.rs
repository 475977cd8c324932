//! Years, months and days of a time: the proleptic Gregorian calendar in UTC, without leap seconds.

use ropewalk_base::civil;

const DAY: i64 = 86_400;
/// Days from 1 March of the year -292,277,022,400, the first day that is counted, to 1970. Seconds since then
/// are counted in 64 bits that wrap, as in Prometheus: the last seconds of an `i64` before that day come at
/// the end.
const DAYS_BEFORE_1970: i64 = 106_751_991_073_400;

/// A time as calendar fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12
    pub(crate) month: i64,
    /// 1 to 31
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    /// 0 is Sunday.
    pub(crate) weekday: i64,
}

impl Civil {
    /// The time `seconds` after 1970.
    pub(crate) fn new(seconds: i64) -> Self {
        let counted = seconds.wrapping_add(DAYS_BEFORE_1970 * DAY) as u64;
        let rest = (counted % DAY as u64) as i64;
        let days = (counted / DAY as u64) as i64 - DAYS_BEFORE_1970;
        let (year, month, day) = civil::from_days(days);
        Self {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            weekday: civil::weekday(days),
        }
    }

    /// Days of its month.
    pub(crate) fn days_in_month(self) -> i64 {
        civil::days_in_month(self.year, self.month)
    }

    /// 1 to 366
    pub(crate) fn yearday(self) -> i64 {
        civil::to_days(self.year, self.month, self.day) - civil::to_days(self.year, 1, 1) + 1
    }
}

/// The whole seconds of a float, rounded toward zero; `i64::MIN` for NaN and values out of range, as x86-64
/// converts.
pub(crate) fn whole_seconds(seconds: f64) -> i64 {
    // The casts are exact: both are powers of two.
    if (i64::MIN as f64..-(i64::MIN as f64)).contains(&seconds) { seconds as i64 } else { i64::MIN }
}

/// `2026-11-21T18:15:00Z`
pub(crate) fn rfc3339(ms: i64) -> String {
    let t = Civil::new(ms.div_euclid(1000));
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", t.year, t.month, t.day, t.hour, t.minute, t.second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_are_hard_to_count() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
        let t = Civil::new(951_782_400);
        assert_eq!((t.weekday, t.yearday(), t.days_in_month()), (2, 60, 29));
        assert_eq!(Civil::new(4_102_444_799).yearday(), 365); // 2099-12-31
    }
}
