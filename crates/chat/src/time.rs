//! A date and time from the caller's clock, and `strftime` over it.

use std::fmt::Write;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
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

/// A moment as a wall clock shows it. This crate has no clock: whoever renders says what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// Days since 1970-01-01.
    days: i64,
}

impl DateTime {
    /// The wall clock at `seconds` since 1970-01-01T00:00:00. Add the offset of a time zone to get local time.
    /// Years beyond 0 to 9999 are brought to the nearest of them, since templates expect four digits.
    pub fn from_unix(seconds: i64) -> Self {
        let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
        let days = seconds.div_euclid(86_400);
        let rest = seconds.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        Self { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60, days }
    }

    /// The date as C's `strftime` writes it in the C locale. An unknown code stays as it is. `-` after `%` drops
    /// leading zeros, as on most systems.
    pub fn format(&self, format: &str) -> String {
        let mut out = String::with_capacity(format.len() + 16);
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut code = rest.clone();
            let next = code.next();
            let unpadded = next == Some('-');
            let field = if unpadded { code.next() } else { next };
            let start = out.len();
            if field.is_some_and(|field| self.field(field, &mut out)) {
                rest = code;
                if unpadded {
                    let text = out.split_off(start);
                    let digits = text.trim_start_matches([' ', '0']);
                    out.push_str(if digits.is_empty() && !text.is_empty() { "0" } else { digits });
                }
            } else {
                out.push('%');
            }
        }
        out
    }

    fn weekday(&self) -> i64 {
        (self.days + 4).rem_euclid(7)
    }

    fn day_of_year(&self) -> i64 {
        self.days - days_before(self.year) + 1
    }

    /// The ISO 8601 year and week.
    fn iso_week(&self) -> (i64, i64) {
        let thursday = self.days - (self.weekday() + 6) % 7 + 3;
        let (year, ..) = civil(thursday);
        (year, (thursday - days_before(year)) / 7 + 1)
    }

    /// Writes one field; false if there is no such code.
    fn field(&self, code: char, out: &mut String) -> bool {
        let twelve = (self.hour + 11) % 12 + 1;
        let week = |first: i64| (self.day_of_year() + 6 - (self.weekday() - first).rem_euclid(7)) / 7;
        let _ = match code {
            'Y' | 'G' => write!(out, "{}", if code == 'Y' { self.year } else { self.iso_week().0 }),
            'C' => write!(out, "{:02}", self.year / 100),
            'y' => write!(out, "{:02}", self.year % 100),
            'g' => write!(out, "{:02}", self.iso_week().0 % 100),
            'm' => write!(out, "{:02}", self.month),
            'd' => write!(out, "{:02}", self.day),
            'e' => write!(out, "{:2}", self.day),
            'H' => write!(out, "{:02}", self.hour),
            'k' => write!(out, "{:2}", self.hour),
            'I' => write!(out, "{twelve:02}"),
            'l' => write!(out, "{twelve:2}"),
            'M' => write!(out, "{:02}", self.minute),
            'S' => write!(out, "{:02}", self.second),
            'f' => write!(out, "000000"),
            'j' => write!(out, "{:03}", self.day_of_year()),
            'p' => write!(out, "{}", if self.hour < 12 { "AM" } else { "PM" }),
            'P' => write!(out, "{}", if self.hour < 12 { "am" } else { "pm" }),
            'A' => write!(out, "{}", DAYS[self.weekday() as usize]),
            'a' => write!(out, "{}", &DAYS[self.weekday() as usize][..3]),
            'B' => write!(out, "{}", MONTHS[self.month as usize - 1]),
            'b' | 'h' => write!(out, "{}", &MONTHS[self.month as usize - 1][..3]),
            'w' => write!(out, "{}", self.weekday()),
            'u' => write!(out, "{}", (self.weekday() + 6) % 7 + 1),
            'U' => write!(out, "{:02}", week(0)),
            'W' => write!(out, "{:02}", week(1)),
            'V' => write!(out, "{:02}", self.iso_week().1),
            's' => write!(out, "{}", self.days * 86_400 + self.hour * 3600 + self.minute * 60 + self.second),
            'F' => return self.fields("%Y-%m-%d", out),
            'T' | 'X' => return self.fields("%H:%M:%S", out),
            'R' => return self.fields("%H:%M", out),
            'r' => return self.fields("%I:%M:%S %p", out),
            'D' | 'x' => return self.fields("%m/%d/%y", out),
            'c' => return self.fields("%a %b %e %H:%M:%S %Y", out),
            'Z' | 'z' => Ok(()), // a wall clock without a zone, as Python's naive datetime
            'n' => out.write_char('\n'),
            't' => out.write_char('\t'),
            '%' => out.write_char('%'),
            _ => return false,
        };
        true
    }

    fn fields(&self, format: &str, out: &mut String) -> bool {
        out.push_str(&self.format(format));
        true
    }
}

/// Days from 1970-01-01 to the first day of `year`.
fn days_before(year: i64) -> i64 {
    let y = year - 1;
    365 * (year - 1970) + (y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400)) - 477
}

/// Year, month and day, counted from 1, of a number of days since 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let mut year = 1970 + days.div_euclid(366); // never too late, and at most a few years early
    while days_before(year + 1) <= days {
        year += ((days - days_before(year + 1)) / 366).max(0) + 1;
    }
    while days_before(year) > days {
        year -= 1;
    }
    let leap = days_before(year + 1) - days_before(year) == 366;
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut day = days - days_before(year);
    for (month, length) in (1..).zip(lengths) {
        if day < length {
            return (year, month, day + 1);
        }
        day -= length;
    }
    unreachable!("a day of a year lies in one of its months")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 4 001 01"),
            (-1, "1969-12-31 23:59:59 3 365 01"),
            (951_782_399, "2000-02-28 23:59:59 1 059 09"),
            (951_782_400, "2000-02-29 00:00:00 2 060 09"),
            (1_720_242_243, "2024-07-06 05:04:03 6 188 27"),
            (1_735_689_599, "2024-12-31 23:59:59 2 366 01"),
            (4_107_542_400, "2100-03-01 00:00:00 1 060 09"),
            (i64::MAX, "9999-12-31 23:59:59 5 365 52"),
            (i64::MIN, "0-01-01 00:00:00 6 001 52"),
        ] {
            assert_eq!(DateTime::from_unix(seconds).format("%Y-%m-%d %H:%M:%S %w %j %V"), text, "{seconds}");
        }
    }

    #[test]
    fn every_day_of_1200_years_follows_the_one_before() {
        let mut before = civil(-220_000);
        for days in -219_999..220_000 {
            let (year, month, day) = civil(days);
            let next =
                [(before.0, before.1, before.2 + 1), (before.0, before.1 + 1, 1), (before.0 + 1, 1, 1)];
            assert!(next.contains(&(year, month, day)), "{before:?} then {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    #[test]
    fn unknown_codes_and_a_lone_percent_stay() {
        let now = DateTime::from_unix(0);
        assert_eq!(now.format("%Q %-Q % é %"), "%Q %-Q % é %");
        assert_eq!(now.format("%-d.%-m.%-H %-y"), "1.1.0 70");
    }
}
