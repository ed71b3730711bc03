// Package obs tells Prometheus what a store does: [New] is a collector over its Stats and the figures of a front, [Handler] serves it.
// docs/metrics.md lists every metric; dashboard.json shows them in Grafana. What people look at without either is in package page.
//
// It owns the names, units and labels of the metrics. It promises that the number of series is bounded, whatever is stored: at most 25 models
// with at most 22 scopes each, 64 reasons, 64 rates. A scope's label is the beginning of its id, which is a hash; names of scopes and refs,
// tokens and texts are in no label. A scrape takes what Store.Stats takes, and, of a store with many scopes, at most a twentieth of the time
// goes into counting them.
//
// Counters begin at 0 when a store is opened, as Stats does; rate() and increase() take that for what it is.
//
// It is the only package that imports client_golang, and no package that apps embed imports it. It must not know which front it serves.
package obs
