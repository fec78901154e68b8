// Package survey reads the open workflows of a Conductor and finds perago's tasks that
// Conductor has lost from their queues. It changes nothing.
package survey
