//! `nibble devices`: what models can run on here.

use crate::{cache, terminal};
use nibble_api::{BACKENDS, Error};
use std::fmt::Write;

pub fn run() -> Result<(), Error> {
    let mut text = String::new();
    for backend in BACKENDS {
        let found = (backend.find)(cache::devices().as_ref());
        if found.is_empty() {
            writeln!(text, "{}: none", backend.name).expect("strings take text");
        }
        for device in found {
            writeln!(text, "{}: {}", backend.name, device.name).expect("strings take text");
            for (what, value) in device.details {
                writeln!(text, "    {what:<18} {value}").expect("strings take text");
            }
        }
    }
    terminal::say(text)
}
