package worker

func childProgram() func() { return nil }
