package file

import "time"

// alarm is a timer that keeps the earliest of the times it was set to. However many events set it, it rings once.
type alarm struct {
	timer *time.Timer
	due   time.Time
}

func newAlarm() *alarm {
	a := &alarm{timer: time.NewTimer(time.Hour)}
	a.timer.Stop()
	return a
}

func (a *alarm) at(t time.Time) {
	if a.due.IsZero() || t.Before(a.due) {
		a.due = t
		a.timer.Reset(time.Until(t))
	}
}

// rang must be called when the timer has fired.
func (a *alarm) rang() { a.due = time.Time{} }
