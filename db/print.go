package db

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// String says in a few lines how much of the prompt would be reused, why not more, what is stored along it, and which other models have more of it.
func (x Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s would be reused: %v", x.Tokens, counted(x.Prompt, "token"), x.Reason)
	for i := 0; i < len(x.Blocks); {
		first, n := x.Blocks[i], 1
		for i+n < len(x.Blocks) && x.Blocks[i+n].Scope == first.Scope && slices.Equal(x.Blocks[i+n].Groups, first.Groups) {
			n++
		}
		scope := "shared"
		if !first.Scope.IsShared() {
			scope = "scope " + first.Scope.String()
		}
		fmt.Fprintf(&b, "\n[%d, %d): %s, %s: %s", first.Start, x.Blocks[i+n-1].End, counted(n, "block"), scope, strings.Join(first.Groups, ", "))
		i += n
	}
	for _, o := range x.Elsewhere {
		if o.Err != nil {
			fmt.Fprintf(&b, "\nmodel %s (%s): what it has of it is not known: %v", o.Name, o.Fingerprint, o.Err)
			continue
		}
		var differs []string
		for _, d := range o.Differs {
			differs = append(differs, d.String())
		}
		fmt.Fprintf(&b, "\nmodel %s (%s) has %s of it, and differs: %s", o.Name, o.Fingerprint, counted(o.Tokens, "token"), strings.Join(differs, "; "))
	}
	return b.String()
}

// String says in a few lines what the store did since it was opened, what it holds, and what is wrong with it, if anything is.
func (s Stats) String() string {
	lines := []string{
		fmt.Sprintf("matches: %d, of them %d found something; %d of %s reused%s", s.Matches, s.Hits, s.TokensReused, counted(s.TokensAsked, "token"), s.reasons()),
		fmt.Sprintf("puts: %d; %s written (%s), %d stored already, %d replaced", s.Puts, counted(s.Records, "record"), inBytes(s.BytesPut), s.Reused, s.Replaced),
		fmt.Sprintf("removed: %s evicted, %d deleted", counted(s.Evicted, "block"), s.Deleted),
		fmt.Sprintf("stored: %s, %s (%s)%s", counted(s.Blocks, "block"), counted(s.StoredRecords, "record"), inBytes(s.LiveBytes), s.sessions()),
		fmt.Sprintf("disk: %s of a budget of %s, at most %s so far%s", inBytes(s.DiskBytes), inBytes(s.Budget), inBytes(s.DiskHighWater), s.free()),
		fmt.Sprintf("half below and 99 %% below: match %v, restore %v, put %v", times(s.Lookup), times(s.Restore), times(s.Put)),
	}
	return strings.Join(append(lines, s.wrong()...), "\n")
}

// reasons are why matches were not longer, the most frequent first.
func (s Stats) reasons() string {
	codes := slices.Collect(maps.Keys(s.Reasons))
	slices.SortFunc(codes, func(a, b ReasonCode) int {
		if n, m := s.Reasons[a], s.Reasons[b]; n != m {
			return int(min(max(m-n, -1), 1))
		}
		return int(a) - int(b)
	})
	var out []string
	for _, c := range codes {
		out = append(out, fmt.Sprintf("%v %d", c, s.Reasons[c]))
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + strings.Join(out, ", ")
}

func (s Stats) sessions() string {
	if s.Sessions == 0 {
		return ""
	}
	return fmt.Sprintf(", %s (%s)", counted(s.Sessions, "session"), inBytes(s.SessionBytes))
}

func (s Stats) free() string {
	if s.DiskFree < 0 {
		return ""
	}
	return fmt.Sprintf("; %s free, of them %s kept free", inBytes(s.DiskFree), inBytes(s.KeptFree))
}

// wrong are the lines that are there only if they say something.
func (s Stats) wrong() (lines []string) {
	add := func(so bool, format string, args ...any) {
		if so {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(s.Poisoned, "an fsync has failed: nothing is written until the store is opened again")
	add(s.Full, "the disk is full: nothing is stored")
	add(s.Damaged > 0, "damaged: %s", counted(s.Damaged, "record"))
	add(s.Collisions > 0, "key collisions: %d", s.Collisions)
	add(s.PendingRecords > 0, "to be destroyed once no match sees them: %s (%s)", counted(s.PendingRecords, "record"), inBytes(s.PendingBytes))
	add(s.OpenMatches > 0, "open: %s", counted(s.OpenMatches, "match"))
	add(s.BesideWriter && s.AsOf.IsZero(), "another process writes, and has made no checkpoint yet")
	add(s.BesideWriter && !s.AsOf.IsZero(), "another process writes; this is its checkpoint of %s", s.AsOf.UTC().Format(time.RFC3339))
	return lines
}

// counted is a number of things, of which there may be one.
func counted[N int | int64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what == "match":
		return fmt.Sprintf("%d matches", n)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// times is a histogram in a line.
func times(h Histogram) string {
	if h.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%v and %v", h.Quantile(0.5), h.Quantile(0.99))
}

// inBytes is a size as people write it.
func inBytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < 3 {
		value /= 1 << 10
		unit++
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + []string{"KiB", "MiB", "GiB", "TiB"}[unit]
}
