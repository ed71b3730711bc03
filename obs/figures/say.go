package figures

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Comma is a number as people read it: 7,204.
func Comma[N int | int64](n N) string {
	text, minus := strings.CutPrefix(strconv.FormatInt(int64(n), 10), "-")
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if minus {
		return "-" + text
	}
	return text
}

// Ago is how long something is past, roughly: "2 h".
func Ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Share is a part in percent, as people read it: between 0 and 100 it says neither.
func Share(part, whole int64) string {
	switch p := 100 * float64(part) / float64(whole); {
	case whole <= 0:
		return "–"
	case p > 0 && p < 1:
		return "<1 %"
	case p > 99 && p < 100:
		return ">99 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// Why says in words why no more of a prompt was reused, with the types of the parts that the reason is about.
func (q *Request) Why() string {
	out := Words(q.Reason)
	if q.Types != "" {
		out += " (" + q.Types + ")"
	}
	if q.Unused > 0 {
		out += "; " + Comma(q.Unused) + " tokens were restored and computed again"
	}
	return out
}

// alike are so few tokens in common that two prompts have nothing to do with each other: what a template puts before each of them.
const alike = 16

// Apart reports whether two prompts have nothing in common to speak of.
func (p *Parted) Apart() bool { return p.Common < alike }

// Says says where a prompt of so many tokens parted from the nearest other: "parted at token 312 of 7,204, in the tools, from a prompt of 2 h before". The advice is not in it.
func (p *Parted) Says(asked int) string {
	if p.Apart() {
		return "has only its first " + plural(p.Common, "token") + " in common with any prompt that is there"
	}
	out := "parted at token " + Comma(p.Token)
	if asked > 0 {
		out += " of " + Comma(asked)
	}
	switch {
	case p.Part == "":
	case p.Part == "template":
		out += ", in the template's own text"
	case strings.HasPrefix(p.Part, "message "):
		out += ", in " + p.Part
	default:
		out += ", in the " + p.Part
	}
	if p.Age > 0 {
		out += ", from a prompt of " + Ago(p.Age) + " before"
	}
	return out
}

// Advise is the advice as a sentence of its own; empty: there is none.
func (p *Parted) Advise() string {
	if p.Advice == "" {
		return ""
	}
	first, n := utf8.DecodeRuneInString(p.Advice)
	return string(unicode.ToUpper(first)) + p.Advice[n:]
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Comma(n) + " " + what + "s"
}

// Asks says who asked for what: "claude-code at /v1/messages".
func (q *Request) Asks() string {
	switch {
	case q.Client != "" && q.Endpoint != "":
		return q.Client + " at " + q.Endpoint
	case q.Client != "":
		return q.Client
	}
	return q.Endpoint
}

// Short reports whether less than nine tenths of a prompt were reused, or it is not known how many.
func (q *Request) Short() bool { return !q.Known() || 10*q.Reused < 9*q.Asked }

// Ended says how requests ended, in words; the numbers add up to all of them.
func (f *Front) Ended() string {
	var out []string
	for _, x := range []struct {
		of  Outcome
		how string
	}{{Hit, "from the store"}, {Slot, "still in a slot"}, {Miss, "not found"}, {Pass, "passed through"}, {Cancelled, "cancelled"}} {
		if n := f.Count(x.of); n > 0 {
			out = append(out, Comma(n)+" "+x.how)
		}
	}
	return strings.Join(out, ", ")
}
