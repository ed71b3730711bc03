// Package trial remembers what did not work or did not pay, so that it is left alone for a while and then tried again.
//
// [Cases] counts failures by case. [Costs] compares what restores take with what computing takes. Nothing is switched off for good.
package trial
