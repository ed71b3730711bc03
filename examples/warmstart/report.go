package main

import (
	"time"

	"github.com/dormousekv/dormouse/internal/tiny"
)

// report is the outcome as -json prints it. Times and sizes are those of Q8_0, the codec that a store uses by default,
// unless their name says raw.
type report struct {
	OK             bool     `json:"ok"`
	Failures       []string `json:"failures"`
	Seed           uint64   `json:"seed"`
	PromptTokens   int      `json:"prompt_tokens"`
	ReusedTokens   int      `json:"reused_tokens"`
	ColdMillis     float64  `json:"cold_ttft_ms"`
	WarmMillis     float64  `json:"warm_ttft_ms"`
	OpenMillis     float64  `json:"warm_open_ms"`
	RestoreMillis  float64  `json:"warm_restore_ms"`
	ComputeMillis  float64  `json:"warm_compute_ms"`
	SpeedUp        float64  `json:"speed_up"`
	F16Bytes       int64    `json:"f16_bytes"`
	RecordBytes    int64    `json:"record_bytes"`
	StoreBytes     int64    `json:"store_bytes"`
	RawReused      int      `json:"raw_reused_tokens"`
	RawColdMillis  float64  `json:"raw_cold_ttft_ms"`
	RawWarmMillis  float64  `json:"raw_warm_ttft_ms"`
	RawSpeedUp     float64  `json:"raw_speed_up"`
	RawRecordBytes int64    `json:"raw_record_bytes"`
	RawStoreBytes  int64    `json:"raw_store_bytes"`
	Steps          int      `json:"continued_tokens"`
	RawIdentical   bool     `json:"raw_identical"`
	Q8SameTop1     float64  `json:"q8_same_top1"`
	Q8Bound        float64  `json:"q8_same_top1_bound"`
	ControlDiffers bool     `json:"control_differs"`
	Loop           bool     `json:"loop"`
	Text           string   `json:"text"`
}

func (o *outcome) report(t *tiny.Tokenizer) report {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	failures := o.failures()
	return report{
		OK: len(failures) == 0, Failures: failures, Seed: o.seed,
		PromptTokens: o.q8.warm.PromptTokens, ReusedTokens: o.q8.warm.Reused,
		ColdMillis: ms(o.q8.cold.firstToken()), WarmMillis: ms(o.q8.warm.firstToken()),
		OpenMillis: ms(o.q8.warm.Open), RestoreMillis: ms(o.q8.warm.Restore), ComputeMillis: ms(o.q8.warm.Compute),
		SpeedUp:  o.q8.speedUp(),
		F16Bytes: o.q8.warm.F16Bytes, RecordBytes: o.q8.cold.SavedBytes, StoreBytes: o.q8.diskBytes,
		RawReused:     o.raw.warm.Reused,
		RawColdMillis: ms(o.raw.cold.firstToken()), RawWarmMillis: ms(o.raw.warm.firstToken()), RawSpeedUp: o.raw.speedUp(),
		RawRecordBytes: o.raw.cold.SavedBytes, RawStoreBytes: o.raw.diskBytes,
		Steps: len(o.reference.Best), RawIdentical: o.rawIdentical(),
		Q8SameTop1: o.q8SameTop1(), Q8Bound: leastSameTop1,
		ControlDiffers: o.controlDiffers(), Loop: loops(o.reference.Best),
		Text: t.Decode(o.raw.warm.Best),
	}
}
