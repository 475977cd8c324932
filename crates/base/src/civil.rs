//! Days since 1970-01-01 and dates of the proleptic Gregorian calendar.
//!
//! Years within ±10^15 do not overflow; 64 bits of seconds have fewer.
//! Source: H. Hinnant, "chrono-compatible low-level date algorithms": years begin on 1 March, so that the
//! leap day is their last; an era has 400 years.

const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;

/// The English names of the months.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Days since 1970-01-01 of a date.
///
/// Months outside 1 to 12 and days outside the month carry over.
pub fn to_days(year: i64, month: i64, day: i64) -> i64 {
    let months = year * 12 + month - 3;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12));
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE_1970
}

/// Year, month and day of a count of days since 1970-01-01.
pub fn from_days(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Length of a month from 1 to 12.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of the week; Sunday is 0.
pub fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The last Monday that is not after the day.
pub fn monday(days: i64) -> i64 {
    days - (days + 3).rem_euclid(7)
}

/// ISO 8601 year and week: a week belongs to the year of its Thursday.
pub fn iso_week(days: i64) -> (i64, i64) {
    let thursday = monday(days) + 3;
    let (year, ..) = from_days(thursday);
    (year, (thursday - to_days(year, 1, 1)) / 7 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_days() {
        assert_eq!(to_days(1970, 1, 1), 0);
        assert_eq!(to_days(2000, 3, 1), 11_017);
        assert_eq!(from_days(11_016), (2000, 2, 29));
        assert_eq!(to_days(1999, 14, 29), 11_016);
        assert_eq!(to_days(2001, -9, 0), 11_016);
        assert_eq!((weekday(11_016), monday(11_016)), (2, 11_015));
        assert_eq!(iso_week(to_days(2021, 1, 3)), (2020, 53));
        for day in (-800_000..800_000).step_by(13) {
            let (year, month, of_month) = from_days(day);
            assert_eq!(to_days(year, month, of_month), day);
        }
    }

    proptest! {
        #[test]
        fn days_round_trip(days in -100_000_000_000_000_000..100_000_000_000_000_000_i64, shift in 0..57_u32) {
            let days = days >> shift;
            let (year, month, day) = from_days(days);
            prop_assert_eq!(to_days(year, month, day), days);
            let length = days_in_month(year, month);
            prop_assert!((1..=12).contains(&month) && (1..=length).contains(&day));
            prop_assert_eq!(to_days(year, month + 1, 1) - to_days(year, month, 1), length);
        }
    }
}
