package main

// sizes say how much is measured.
type sizes struct {
	rounds     int // that count
	layers     int // of the model; a block of 64 tokens has 128 KiB of f16 for each
	blocks     int // restored, warm and cold
	gibBlocks  int // restored where memory is looked at
	putBlocks  int
	syncBlocks int
	powerPuts  int // of each of four goroutines
	restores   int // for one P99
	busyRounds int
	stalls     int   // puts for one P99.9
	budget     int64 // of the store in which they evict
	deleted    int   // blocks of the scope that is deleted beside them
	long       int   // blocks of a long prompt

	small, middle, large int // blocks of the stores that are opened; the large one is matched in, too
	huge                 int // and in a long run, the same of this one
	pasts                int // blocks of the stores that came to be in other ways
	matches              int // a round
	opens                int
	killed               int64 // bytes of a MiB that lies behind a checkpoint
	models               int   // of the store of many models
	bloomKeys            int

	storyTokens  int // of warmstart's prompt; 0: all
	storyAnswer  int // tokens that it, or the real model, goes on with
	storyPhrases int // of the real model's prompt

	costRounds int
}

var fullSize = sizes{
	rounds: 9, layers: 16, blocks: 256, gibBlocks: 512, putBlocks: 256, syncBlocks: 512, powerPuts: 64, restores: 500, busyRounds: 7, stalls: 2000, budget: 512 << 20, deleted: 50_000, long: 4096,
	small: 10_000, middle: 100_000, large: 1_000_000, huge: 10_000_000, pasts: 1_000_000, matches: 4000, opens: 11, killed: 1 << 20, models: 1000, bloomKeys: 1_000_000,
	storyAnswer: 16, storyPhrases: 150, costRounds: 5,
}

var quickSize = sizes{
	rounds: 5, layers: 16, blocks: 96, gibBlocks: 128, putBlocks: 64, syncBlocks: 48, powerPuts: 8, restores: 100, busyRounds: 1, stalls: 1000, budget: 512 << 20, deleted: 50_000, long: 4096,
	small: 10_000, middle: 100_000, large: 100_000, huge: 10_000_000, pasts: 20_000, matches: 2000, opens: 5, killed: 1 << 18, models: 1000, bloomKeys: 1_000_000,
	storyTokens: 128, storyAnswer: 16, storyPhrases: 20, costRounds: 1,
}

// smaller says of a figure whose name has a number of blocks in it that it was taken with fewer.
func (s sizes) smaller(named, taken int) string {
	if named == taken {
		return ""
	}
	return " (a store of " + count(taken) + " blocks stands in for one of " + count(named) + ")"
}
