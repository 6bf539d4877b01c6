# Everything is in ./dev, which needs Python alone; these are the same words for those who type make.

.PHONY: demo test bench clean

demo test bench clean:
	@./dev $@ $(ARGS)
