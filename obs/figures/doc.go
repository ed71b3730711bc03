// Package figures counts what a store does for the requests of a front: a proxy before a model server, or an app's own loop.
//
// It owns [Request], what is known of one request; [Recorder], which adds requests up and keeps the last hundred; and [Front], what a page or a
// scrape reads of it.
//
// It promises that memory is bounded, whatever comes in: by the last hundred requests, 240 points in time, 64 reasons and 64 models. Nothing of a
// request gets in but counts, times, and these words:
//
//   - a model's name, the path that was asked, and the name that the front has for the client;
//   - a reason, which is a code of ours (letters, digits and underscores; anything else is "other");
//   - at most four types of the request's parts, such as "web_search";
//   - where the prompt parted from another: a position, the kind of part, a code, and a sentence of ours.
//
// It promises that sums agree: Asked is Reused and Computed together, whatever requests say, and the counts of requests are those of all that were added.
//
// It must not know how a front works, nor who reads the figures.
package figures
