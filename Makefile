# Everything is in ./dev, which needs Python alone; these are the same words for those who type make.

.PHONY: demo test soak bench clean

demo test soak bench clean:
	@./dev $@ $(ARGS)
