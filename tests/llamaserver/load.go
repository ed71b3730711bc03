//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// loaded is what load reports.
type loaded struct {
	Server   string `json:"server"`
	Model    string `json:"model"`
	Requests int64  `json:"requests"`
	Left     int64  `json:"cancelled"` // of these, by their clients
	AtOnce   int    `json:"at_once"`
	Failed   int64  `json:"failed"`
	Asked    int64  `json:"asked_tokens"`
	Reused   int64  `json:"reused_tokens"`
	Computed int64  `json:"computed_tokens"`
	Unused   int64  `json:"restored_not_reused"`
	Counted  tally  `json:"counted"` // by the front
	// Of the front's process: when it was idle after a while, and at the end; memory is that which belongs to no file.
	Before taken `json:"before"`
	After  taken `json:"after"`
	// Means of the second and of the last quarter, under load.
	Second taken `json:"second_quarter"`
	Last   taken `json:"last_quarter"`
}

// taken is what a process has of the system.
type taken struct {
	Goroutines  int `json:"goroutines,omitempty"` // when it is idle
	SlotFiles   int `json:"slot_files,omitempty"` // likewise
	Descriptors int `json:"descriptors"`
	Threads     int `json:"threads"`
	AnonKiB     int `json:"anonymous_kib"`
	RSSKiB      int `json:"rss_kib"`
}

// load asks as many as atOnce requests at a time, of which some are cancelled.
func load(ctx context.Context, r *rig) (any, error) {
	out := &loaded{Server: r.version, Model: filepath.Base(r.model), AtOnce: 64}
	f, err := r.serve(ctx, filepath.Join(r.dir, "store"), []string{"--budget", "256MiB", "--log", "warn"}, "-c", "2048", "-np", "4", "--log-disable")
	if err != nil {
		return nil, err
	}
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	var clients asked
	burst := func(d time.Duration) ([]taken, error) {
		working, stop := context.WithTimeout(ctx, d)
		defer stop()
		var all sync.WaitGroup
		var next atomic.Uint64
		errs := make(chan error, out.AtOnce)
		for range out.AtOnce {
			all.Go(func() {
				for working.Err() == nil {
					if err := clients.one(ctx, f.url, next.Add(1)); err != nil {
						atomic.AddInt64(&out.Failed, 1)
						select {
						case errs <- err:
						default:
						}
					}
				}
			})
		}
		var samples []taken
		for working.Err() == nil {
			time.Sleep(min(time.Second, d/16))
			t, err := look(f.pid())
			if err != nil {
				return nil, err
			}
			samples = append(samples, t)
		}
		all.Wait()
		select {
		case err := <-errs:
			return samples, err
		default:
			return samples, nil
		}
	}
	idle := func() (taken, error) {
		if _, err := f.stored(ctx); err != nil {
			return taken{}, err
		}
		time.Sleep(2 * time.Second)
		s, err := f.stored(ctx)
		if err != nil {
			return taken{}, err
		}
		t, err := look(f.pid())
		if err == nil {
			t.Goroutines = s.Goroutines
			t.SlotFiles, err = f.slotFiles(ctx)
		}
		return t, err
	}
	if _, err := burst(r.time / 4); err != nil { // until everything is warm
		return out, err
	}
	if out.Before, err = idle(); err != nil {
		return out, err
	}
	samples, err := burst(r.time)
	if err != nil {
		return out, err
	}
	if out.After, err = idle(); err != nil {
		return out, err
	}
	quarter := len(samples) / 4
	out.Second, out.Last = mean(samples[quarter:2*quarter]), mean(samples[len(samples)-quarter:])
	status, err := f.status(ctx)
	if err != nil {
		return out, err
	}
	out.Requests, out.Left, out.Counted = clients.Requests.Load(), clients.Cancelled.Load(), tallyOf(status)
	out.Asked, out.Reused, out.Computed, out.Unused = status.Asked, status.Reused, status.Computed, status.Unused
	wrong := []error{clients.agrees(status), f.checkMetrics(ctx)}
	for _, x := range []struct {
		what          string
		before, after int
		most          int // that it may grow by
	}{
		// Connections that were left idle are kept for a while: a few more or less are none that leak. 64 at a time for a minute would leak thousands.
		{"descriptors, idle", out.Before.Descriptors, out.After.Descriptors, 32}, {"descriptors, at work", out.Second.Descriptors, out.Last.Descriptors, 64},
		{"goroutines, idle", out.Before.Goroutines, out.After.Goroutines, 16},
		{"slot files, idle", out.Before.SlotFiles, out.After.SlotFiles, 2},
		{"threads, idle", out.Before.Threads, out.After.Threads, 8},
		{"KiB of memory, idle", out.Before.AnonKiB, out.After.AnonKiB, max(32<<10, out.Before.AnonKiB/2)},
		{"KiB of memory, at work", out.Second.AnonKiB, out.Last.AnonKiB, max(32<<10, out.Second.AnonKiB/2)},
	} {
		if x.after > x.before+x.most {
			wrong = append(wrong, fmt.Errorf("%s grew from %d to %d", x.what, x.before, x.after))
		}
	}
	if status.Asked == 0 || out.Reused == 0 {
		wrong = append(wrong, errors.New("nothing was reused"))
	}
	return out, errors.Join(append(wrong, f.end())...)
}

// look counts what a process has.
func look(pid int) (t taken, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		return t, err
	}
	text, err := os.ReadFile(dir + "status")
	if err != nil {
		return t, err
	}
	t.Descriptors = len(fds)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		i := slices.Index([]string{"Threads:", "RssAnon:", "VmRSS:"}, words[0])
		if i < 0 || len(words) < 2 {
			continue
		}
		if *[]*int{&t.Threads, &t.AnonKiB, &t.RSSKiB}[i], err = strconv.Atoi(words[1]); err != nil {
			return t, err
		}
	}
	return t, nil
}

func mean(of []taken) (m taken) {
	for _, t := range of {
		m.Descriptors += t.Descriptors
		m.Threads += t.Threads
		m.AnonKiB += t.AnonKiB
		m.RSSKiB += t.RSSKiB
	}
	if n := len(of); n > 0 {
		m = taken{Descriptors: m.Descriptors / n, Threads: m.Threads / n, AnonKiB: m.AnonKiB / n, RSSKiB: m.RSSKiB / n}
	}
	return m
}
