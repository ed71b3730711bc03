package figures

import (
	"slices"
	"time"
)

// Series is what became of requests over time: at most 240 points, each a stretch of the same width. The width begins at 10 s and doubles
// when the points are full, up to some 11 minutes; then the oldest go. So it covers all since the first request, or the last 42 hours.
type Series struct {
	Start  time.Time // of the first point
	Width  time.Duration
	Points []Point
}

// Point is what ended in one stretch of time.
type Point struct {
	Hits, Slots, Misses, Passed, Cancelled int64 // requests
	Asked, Reused, Computed                int64 // tokens, where it is known what became of them
	Saved                                  time.Duration
}

func point(q Request) (p Point) {
	switch q.Outcome {
	case Hit:
		p.Hits = 1
	case Slot:
		p.Slots = 1
	case Miss:
		p.Misses = 1
	case Cancelled:
		p.Cancelled = 1
	default:
		p.Passed = 1
	}
	p.Asked, p.Reused, p.Computed, p.Saved = int64(q.Reused+q.Computed), int64(q.Reused), int64(q.Computed), q.Saved
	return p
}

func (p *Point) add(q Point) {
	p.Hits += q.Hits
	p.Slots += q.Slots
	p.Misses += q.Misses
	p.Passed += q.Passed
	p.Cancelled += q.Cancelled
	p.Asked += q.Asked
	p.Reused += q.Reused
	p.Computed += q.Computed
	p.Saved += q.Saved
}

const (
	maxPoints   = 240
	narrowest   = 10 * time.Second
	widestPoint = 64 * narrowest
)

type series struct {
	start  time.Time
	width  time.Duration
	points []Point
}

// at is the point of a time. What was before the first point belongs to that.
func (s *series) at(t time.Time) *Point {
	if s.width == 0 {
		s.width, s.start = narrowest, t.Truncate(narrowest)
	}
	i := int64(t.Sub(s.start) / s.width)
	for i >= maxPoints && s.width < widestPoint {
		half := s.points[:(len(s.points)+1)/2]
		for j := range half {
			p := s.points[2*j]
			if 2*j+1 < len(s.points) {
				p.add(s.points[2*j+1])
			}
			half[j] = p
		}
		s.points = half
		s.width *= 2
		i = int64(t.Sub(s.start) / s.width)
	}
	if gone := i - (maxPoints - 1); gone > 0 {
		s.points = slices.Delete(s.points, 0, int(min(gone, int64(len(s.points)))))
		s.start = s.start.Add(time.Duration(gone) * s.width)
		i = maxPoints - 1
	}
	i = max(0, i)
	for int64(len(s.points)) <= i {
		s.points = append(s.points, Point{})
	}
	return &s.points[i]
}

// read is the series up to now.
func (s *series) read(now time.Time) Series {
	if s.width == 0 {
		return Series{}
	}
	s.at(now)
	return Series{Start: s.start, Width: s.width, Points: slices.Clone(s.points)}
}
