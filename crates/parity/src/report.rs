//! A comparison as text for people and as JSON for programs.

use crate::{Precision, Report};
use serde_json::{Value, json};
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.agreement, &self.bounds);
        writeln!(f, "{} against {}", self.subject.side, self.reference.side)?;
        for (who, identity) in [("model", &self.subject), ("reference", &self.reference)] {
            writeln!(f, "\n{who}: {}", identity.side)?;
            identity.text.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        writeln!(f, "  checked  {}", self.checked)?;
        let cut = match self.cut {
            (0, _) => String::new(),
            (cut, context) => format!(", {cut} of them cut to the context of {context}"),
        };
        let what = if self.log_probs { "log-probabilities" } else { "logits" };
        writeln!(f, "\nprompts        {}{cut}", self.prompts.len())?;
        writeln!(f, "positions      {}", a.positions)?;
        writeln!(
            f,
            "cosine         min {:.7}, mean {:.7}   (min at least {})",
            a.cosine_min,
            a.cosine_mean(),
            b.cosine
        )?;
        writeln!(f, "max |diff|     {:.3e} of {what}   (at most {:e})", a.max_diff, b.max_diff)?;
        writeln!(f, "mean KL        {:.3e} nats   (at most {:e})", a.kl(), b.kl)?;
        write!(f, "top-1          {} of {} = {:.3} %", a.same_top(), a.positions, 100.0 * a.top1())?;
        writeln!(f, "   (at least {} %)", 100.0 * b.top1)?;
        if a.same_top() < a.positions {
            writeln!(
                f,
                "               where not, the reference's choice leads by {:.3} at most",
                a.overturned
            )?;
        }
        self.greedy_lines(f)?;
        self.layer_lines(f)?;
        writeln!(f, "frameworks     {}", self.sovereignty.summary())?;
        let bounds = match self.precision {
            Precision::Exact => "both sides compute with floats",
            Precision::Rounded => "a side rounds inputs of products, keys or values",
        };
        writeln!(f, "\nverdict        {}   ({bounds})", if self.passes() { "PASS" } else { "FAIL" })?;
        self.broken.iter().try_for_each(|why| writeln!(f, "               {why}"))
    }
}

impl Report {
    fn greedy_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(greedy) = &self.greedy else {
            return writeln!(f, "greedy         not verified: the reference has no continuations");
        };
        let (n, tokens, parted) = (greedy.continuations, greedy.tokens, greedy.parted);
        writeln!(f, "greedy         {n} continuations of {tokens} tokens, {parted} part")?;
        let Some(first) = &greedy.first else { return Ok(()) };
        let ([mine, right], [lead, right_lead]) = (first.tokens, first.leads);
        writeln!(
            f,
            "               first: `{}` after {} tokens, {mine} (leads by {lead:.4}) against {right} (leads by {right_lead:.4})",
            first.prompt, first.after
        )
    }

    fn layer_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trace {
            None => writeln!(f, "layers         not verified: the reference says nothing about them")?,
            Some(trace) => {
                write!(f, "layers         {} values compared", trace.values)?;
                if let Some(most) = &trace.most {
                    write!(f, ", off by {:.1e} at most (`{}`)", most.deviation, most.name)?;
                }
                writeln!(f, "   (at most {:e})", self.bounds.layers)?;
            }
        }
        match &self.weights {
            None => writeln!(f, "weights        not verified: the reference does not say its own"),
            Some(weights) => {
                write!(f, "weights        {} compared, {} differ", weights.compared, weights.differ.len())?;
                match weights.incomparable {
                    0 => writeln!(f),
                    n => writeln!(f, "; {n} in other encodings or shapes, or on one side alone"),
                }
            }
        }
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        let (a, side) =
            (&self.agreement, |i: &crate::Identity| json!({ "side": i.side, "identity": i.json }));
        json!({
            "verdict": if self.passes() { "PASS" } else { "FAIL" },
            "broken": self.broken,
            "model": side(&self.subject),
            "reference": side(&self.reference),
            "checked": self.checked,
            "exact": self.precision == Precision::Exact,
            "prompts": self.prompts,
            "cut_prompts": self.cut.0,
            "positions": a.positions,
            "compared": if self.log_probs { "log-probabilities" } else { "logits" },
            "cosine_min": a.cosine_min,
            "cosine_mean": a.cosine_mean(),
            "max_diff": a.max_diff,
            "max_diff_at": a.max_diff_at,
            "mean_kl": a.kl(),
            "top1": a.top1(),
            "overturned_lead": a.overturned,
            "greedy": self.greedy,
            "layers": self.trace,
            "weights": self.weights,
            "frameworks": self.sovereignty,
            "bounds": self.bounds,
        })
    }
}
