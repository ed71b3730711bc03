//go:build race

package segments

const raceDetector = true
