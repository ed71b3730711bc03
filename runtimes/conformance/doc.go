// Package conformance tests what package chat asks of a runtime ([chat.Runtime]): whoever writes one calls [Run] from a test of theirs.
//
//	func TestConformance(t *testing.T) {
//		store := openStore(t)
//		conformance.Run(t, conformance.Kit{
//			New:        func(t testing.TB) chat.Runtime { return newRuntime(t, store) }, // an empty cache, the same model and store
//			Vocabulary: 512,
//			Tolerance:  1e-9, // nats; 0: to the last bit
//		})
//	}
//
// It owns no runtime and knows none: all that it says about one follows from the answers of its calls. It compares answers that two ways
// lead to (a view made of copied ranges, and the same rows left by a removal), and answers that must differ, so that a tolerance under
// which a wrong view passes is found out, too.
//
// A runtime for it has at least 4 sequences and 256 cells. All cells are filled several times: give it few, with a model that is small.
// Answers are compared by KL divergence: one whose arithmetic depends on how steps are batched needs a model in f32 for that, and a store
// whose codec is quant.Raw.
package conformance
