/** What jsdom lacks and JupyterLab's packages expect of a browser as they load. */
class DragEventStub extends MouseEvent {}
class ResizeObserverStub {
  observe(): void {
    return;
  }
  unobserve(): void {
    return;
  }
  disconnect(): void {
    return;
  }
}

Object.assign(globalThis, {
  IS_REACT_ACT_ENVIRONMENT: true,
  DragEvent: DragEventStub,
  ResizeObserver: ResizeObserverStub,
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }),
  requestIdleCallback: (callback: () => void) => setTimeout(callback, 0)
});
